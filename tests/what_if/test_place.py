"""Places of edits: whatever their names are, the text is read back as the same place."""

from __future__ import annotations

import pytest
from cli.command import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import unstall
from unstall.errors import UsageError
from unstall.timeline.columns import Timeline
from unstall.what_if.place import EditPlace, parse_function, parse_line

_ODD = ['"', ":", "\n", "\\", "-", "7", ".py", "aten::add", "a", " ", "\r", "é", "\u2028"]
_NAMES = st.one_of(st.text(min_size=1), st.lists(st.sampled_from(_ODD), min_size=1, max_size=6).map("".join))
_LINES = st.integers(-(2**31), 2**31 - 1)


@given(_NAMES, _NAMES)
def test_a_function_is_read_back_whatever_its_name(file: str, function: str) -> None:
    place = EditPlace(file, function=function)
    assert parse_function(str(place)) == place


@given(st.none() | _NAMES, st.none() | _LINES, st.none() | _NAMES)
def test_a_line_is_read_back_whatever_its_file(file: str | None, line: int | None, op: str | None) -> None:
    place = EditPlace(file, line, op)
    assert parse_line(str(place)) == place


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (EditPlace("train.py", 41), "train.py:41"),
        (EditPlace("C:\\train.py", 41, "aten::item"), "C:\\train.py:41:aten::item"),
        (EditPlace("train.py", function="Model.forward"), "train.py:Model.forward"),
        (EditPlace(None, op="aten::item"), "-:-:aten::item"),
        (EditPlace("a:1:b.py", 41), '"a:1:b.py":41'),
        (EditPlace("train.py", function="a:b"), '"train.py":"a:b"'),
        (EditPlace("tr\nain.py", function="step"), "tr\nain.py:step"),
        (EditPlace("train.py", function="41"), '"train.py":"41"'),
    ],
)
def test_names_are_quoted_only_if_they_must_be(place: EditPlace, text: str) -> None:
    assert str(place) == text


@pytest.mark.parametrize("text", ["train.py:41", "train.py:", ":step", '""'])
def test_what_a_user_typed_wrongly_is_still_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_function(text)


def _renamed(timeline: Timeline, what: str, suffix: str) -> Timeline:
    lines, strings = timeline.lines, list(timeline.strings)
    own = [file in set(lines.file.tolist()) and text.startswith("programs/") for file, text in enumerate(strings)]
    for row in {int(row) for row, file in zip(getattr(lines, what), lines.file, strict=True) if own[file]}:
        strings[row] += suffix
    return replace(timeline, strings=tuple(strings))


@pytest.mark.parametrize("trace", ["waits", "train_item", "tiny_kernels"])
@pytest.mark.parametrize(("what", "suffix"), [("function", ":x"), ("file", "\n"), ("function", "\n"), ("file", ":7:y")])
def test_odd_names_lose_no_finding_and_no_gain(trace: str, what: str, suffix: str) -> None:
    timeline = unstall.load(EXAMPLES / f"{trace}.json.gz")
    usual = unstall.explain(timeline).result
    odd = unstall.explain(_renamed(timeline, what, suffix)).result
    found, expected = ([(each.rule, each.gain_ns) for each in result.findings] for result in (odd, usual))
    assert found == expected
    assert [step.gain_ns for step in odd.plan or ()] == [step.gain_ns for step in usual.plan or ()]
