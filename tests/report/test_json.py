"""JSON: stable to the byte, read back to the same result, and refused in a sentence otherwise."""

from __future__ import annotations

import json as standard
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from report.rendered import as_json
from report.sample import NO_DEVICE, TYPICAL, results

from unstall.answers.report import read_result
from unstall.document.json import map_texts
from unstall.document.plain import plain
from unstall.errors import TraceError
from unstall.result import Result


def test_a_typical_run(golden: Callable[[str, str], None]) -> None:
    golden("typical.json", as_json(TYPICAL))


def test_keys_are_sorted_and_times_are_integers() -> None:
    document = standard.loads(as_json(TYPICAL))
    assert list(document) == sorted(document)
    assert list(document["findings"][0]) == sorted(document["findings"][0])
    assert document["accounts"]["wall_ns"] == 172_913_004
    assert document["findings"][0]["gain_ns"] is None
    assert document["replay"] is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(results())
def test_any_result_is_read_back_as_it_was(tmp_path: Path, result: Result) -> None:
    path = tmp_path / "result.json"
    path.write_text(as_json(result), "utf-8")
    assert read_result(path) == map_texts(result, lambda text: text.replace("\ud800", "?"))


@given(results())
def test_json_on_a_terminal_is_harmless(result: Result) -> None:
    text = as_json(result)
    assert plain(text.replace("\n", "")) == text.replace("\n", "")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a result"),
        (b"[]", "not a result"),
        (b'{"traceEvents": []}', "not a result"),
        (b"\xff\xfe", "not a result"),
        (b"[" * 100_000, "not a result"),
        (b'{"schema": "unstall.explain/2"}', "its schema is 'unstall.explain/2', and this version of unstall reads"),
        (b'{"schema": "unstall.explain/1"}', "missing required field"),
        (as_json(NO_DEVICE).replace('"count": 1', '"count": "1"').encode(), "Expected `int`"),
    ],
)
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"x\.json: ") as caught:
        read_result(path)
    assert complaint in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.json: cannot be read: No such file or directory"):
        read_result(tmp_path / "gone.json")


def test_a_step_count_of_zero_is_refused(tmp_path: Path) -> None:
    steps = msgspec.structs.replace(NO_DEVICE.steps, count=0)
    path = tmp_path / "x.json"
    path.write_text(as_json(msgspec.structs.replace(NO_DEVICE, steps=steps)))
    with pytest.raises(TraceError, match=r"Expected `int` >= 1 - at `\$\.steps\.count`"):
        read_result(path)


def test_numbers_that_no_result_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    text = as_json(TYPICAL)
    path.write_text(text.replace('"wall_ns":', '"wall_ns": 1' + "0" * 400 + ', "was":', 1))
    with pytest.raises(TraceError, match="a number of 21 digits or more"):
        read_result(path)
    path.write_text(text.replace("train.py", f"train{'7' * 30}.py"))  # in a name any digits may stand
    assert read_result(path)
