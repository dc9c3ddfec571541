"""What the words of `unstall audit` ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.auditing.entries import Entry, Offer, asked_for, function_entry
from unstall.errors import UsageError

_OFFERS = "def entries():\n    raise RuntimeError('nobody runs this to know it')\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "eval.py", "two words.py"):
        Path(name).write_text("print('a script')\n")
    Path("offers.py").write_text(_OFFERS)


def test_a_script_is_run_as_it_is() -> None:
    assert asked_for(["train.py"], []) == [Entry("train.py", ("train.py",))]


@pytest.mark.parametrize("name", ["train.py:step", "package.module:Class.method"])
def test_a_function_is_called_in_the_entrys_process(name: str) -> None:
    assert asked_for([name], []) == [Entry(name, ("-m", "unstall.auditing.call", name))]


def test_a_glob_is_all_files_that_match_in_order() -> None:
    assert [entry.name for entry in asked_for(["*a*.py"], []) if isinstance(entry, Entry)] == ["eval.py", "train.py"]


def test_a_file_that_defines_entries_offers_all_of_them() -> None:
    assert asked_for(["offers.py"], []) == [Offer("offers.py", "*")]


def test_a_script_may_have_a_function_of_that_name_with_arguments() -> None:
    Path("train.py").write_text("def entries(book):\n    return book\n")
    assert asked_for(["train.py"], []) == [Entry("train.py", ("train.py",))]


def test_a_pattern_chooses_among_what_a_file_offers() -> None:
    (offer,) = asked_for(["offers.py:Euler*"], [])
    assert isinstance(offer, Offer)
    assert offer.entries(["DDIM", "Euler", "EulerA"]) == [
        function_entry("offers.py:Euler"),
        function_entry("offers.py:EulerA"),
    ]


def test_a_pattern_that_chooses_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"offers nothing that matches 'Heun\*'"):
        Offer("offers.py", "Heun*").entries(["DDIM"])


def test_a_file_of_entries_has_one_a_line_with_arguments_and_comments() -> None:
    Path("list.txt").write_text("# all of them\ntrain.py --epochs 1  # short\n\n'two words.py'\ntrain.py:step\n")
    assert asked_for(["eval.py"], ["list.txt"]) == [
        Entry("eval.py", ("eval.py",)),
        Entry("train.py --epochs 1", ("train.py", "--epochs", "1")),
        Entry("two words.py", ("two words.py",)),
        function_entry("train.py:step"),
    ]


def test_what_is_asked_for_twice_runs_once() -> None:
    assert len(asked_for(["train.py", "train.py", "*.py"], [])) == 4


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("missing.py", "missing.py: there is no such script"),
        ("missing", "a function is named missing:FUNCTION"),
        ("missing.py:step", "there is no file missing.py"),
        ("nowhere/*.py", "no file matches it"),
    ],
)
def test_a_word_that_is_no_entry_is_an_error(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace(".", r"\.").replace("*", r"\*")):
        asked_for([word], [])


def test_an_error_in_a_file_of_entries_names_the_line() -> None:
    Path("list.txt").write_text("train.py\ntrain.py:step --epochs 1\n")
    with pytest.raises(UsageError, match=r"list\.txt:2: train\.py:step: a function takes no arguments"):
        asked_for([], ["list.txt"])
