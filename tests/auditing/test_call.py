"""The process of an entry: which function it calls, and how often."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from unstall.auditing import call
from unstall.guest.steps import observing_steps, step

_FILE = """
def plain():
    return "plain"

class Model:
    @staticmethod
    def forward():
        return "method"

def entries():
    return {"a": lambda: lambda: "prepared", "b": lambda: plain}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "an_entry", raising=False)
    path = tmp_path / "an_entry.py"
    path.write_text(_FILE)
    return path


@pytest.mark.parametrize(
    ("name", "returns"), [("plain", "plain"), ("Model.forward", "method"), ("a", "prepared"), ("b", "plain")]
)
def test_a_name_is_one_that_the_file_offers_or_a_function(file: Path, name: str, returns: str) -> None:
    assert call.call_of(f"{file}:{name}")() == returns


def test_a_module_is_found_by_its_name() -> None:
    assert call.call_of("unstall.auditing.call:main") is call.main


def test_an_unknown_name_ends_the_process_with_a_sentence(file: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no function c, and its entries\(\) offers none of this name"):
        call.call_of(f"{file}:c")


def test_names_are_listed_into_a_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["call", str(file), "--names", str(tmp_path / "names")])
    call.main()
    assert json.loads((tmp_path / "names").read_text()) == ["a", "b"]


def test_a_name_that_is_no_text_ends_the_process_with_a_sentence(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("def entries():\n    return {3: None}")
    monkeypatch.setattr(sys, "argv", ["call", str(file), "--names", str(tmp_path / "names")])
    with pytest.raises(SystemExit, match=r"entries\(\) must return a dict by name, and one of its keys is 3"):
        call.main()
    assert not (tmp_path / "names").exists()


def test_a_file_that_offers_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "no_entries.py").write_text("")
    with pytest.raises(SystemExit, match=r"no_entries\.py defines no entries\(\)"):
        call.names_of(str(tmp_path / "no_entries.py"))


def test_each_call_is_one_step_whatever_steps_it_has_within() -> None:
    steps: list[str] = []

    def one_call() -> None:
        if len(steps) == 3:
            raise StopIteration
        step()
        step()

    with observing_steps(lambda kind, who: steps.append(kind)), pytest.raises(StopIteration):
        call.call_until_stopped(one_call)
    assert steps == ["explicit"] * 3
