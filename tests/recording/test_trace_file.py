"""Records as events of a Chrome trace: exact times, and text that is JSON whatever it was."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall import chrome_trace
from unstall.chrome_trace import Text, micros
from unstall.recording.trace import events as trace_file

_CALL = np.dtype([("start", "<u8"), ("end", "<u8"), ("event", "<u8")])


@given(ns=st.integers(-(2**62), 2**62))
def test_microseconds_keep_every_nanosecond(ns: int) -> None:
    assert Decimal(micros(ns)) * 1000 == ns


@given(zero=st.integers(0, 2**40), start=st.integers(0, 2**40), length=st.integers(-5, 2**40), name=st.text())
def test_a_span_is_json_with_the_name_it_had(zero: int, start: int, length: int, name: str) -> None:
    event = json.loads(Text(zero).span("kernel", name, 1, 2, start, start + length, '"bytes":3'), parse_float=Decimal)
    assert (event["name"], event["ts"] * 1000, event["dur"] * 1000) == (name, start - zero, max(length, 0))
    assert (event["ph"], event["cat"], event["pid"], event["tid"], event["args"]) == ("X", "kernel", 1, 2, {"bytes": 3})


def test_what_is_no_text_becomes_a_question_mark() -> None:
    name = Text(0).name('gemm<"a", \\>\n\udcff')
    assert msgspec.json.decode(name) == 'gemm<"a", \\>\n?'
    assert chrome_trace.readable({"argv": ["a\udc80b", 3, None], "\udc80": {"x": 1.5}}) == {
        "argv": ["a?b", 3, None],
        "?": {"x": 1.5},
    }


def _rows(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(list(rows), _CALL)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3)), max_size=12, unique_by=lambda each: each[0]),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=12),
)
def test_a_wait_is_for_the_last_record_of_its_event_before_it(
    recorded: list[tuple[int, int]], waited: list[tuple[int, int]]
) -> None:
    records = _rows(*((at, at + 1, event) for at, event in recorded))
    waits = _rows(*((at, at + 1, event) for at, event in waited))
    for (at, event), row in zip(waited, trace_file._records_waited_for(waits, records).tolist(), strict=True):
        before = [each for each in recorded if each[1] == event and each[0] < at]
        assert (recorded[row] if row >= 0 else None) == max(before, default=None)


@pytest.mark.parametrize("count", [0, 1, 10_000, 20_001])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file_is_one_json_document_whatever_the_number_of_events(name: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / name
    chrome_trace.write(path, {"schemaVersion": 1}, (f'{{"n":{number}}}' for number in range(count)))
    data = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    document = json.loads(data)
    assert document["schemaVersion"] == 1
    assert [event["n"] for event in document["traceEvents"]] == list(range(count))


def test_a_file_that_fails_midway_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("before")

    def events() -> object:
        yield "{}"
        raise KeyError("lost")

    with pytest.raises(KeyError):
        chrome_trace.write(path, {"schemaVersion": 1}, events())  # type: ignore[arg-type]
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
