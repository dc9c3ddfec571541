"""The scan of events in C against the decoder, whose fast way it is: both give the same columns, or the scan none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from read.documents import documents

from unstall.errors import TraceError
from unstall.read import scan
from unstall.read.events import Events
from unstall.read.kineto import events_of
from unstall.read.schema import Args

pytest.importorskip("unstall.read.scan._scan")

FROM_THE_SECOND_PROFILER = {"copy kind", "src kind", "dst kind", "memory kind"}


def of_text(text: bytes, piece_bytes: int = 1 << 19) -> Events | str:
    def blocks() -> Iterator[bytes]:
        yield text

    try:
        return events_of(blocks(), Path("made.json"), piece_bytes)
    except TraceError as error:
        return str(error)


def without_the_scan(text: bytes, piece_bytes: int = 1 << 19) -> Events | str:
    with patch.object(scan, "_scan", None):
        return of_text(text, piece_bytes)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    elif isinstance(found, msgspec.Struct):
        for field in found.__struct_fields__:
            assert_same(getattr(found, field), getattr(expected, field))
    else:
        assert found == expected


def trace_of(*events: str) -> bytes:
    return b'{"traceEvents":[%b]}' % ",".join(events).encode()


@given(documents(), st.integers(1, 300))
def test_clean_traces(text: bytes, piece_bytes: int) -> None:
    assert_same(of_text(text, piece_bytes), without_the_scan(text, piece_bytes))


@given(documents(dirty=True), st.integers(1, 300))
def test_dirty_traces(text: bytes, piece_bytes: int) -> None:
    assert_same(of_text(text, piece_bytes), without_the_scan(text, piece_bytes))


@given(documents(digits=7), st.integers(0, 10**6), st.binary(min_size=1, max_size=2))
def test_traces_with_a_damaged_byte(text: bytes, where: int, by: bytes) -> None:
    at = where % len(text)
    damaged = text[:at] + by + text[at + 1 :]
    assert_same(of_text(damaged), without_the_scan(damaged))


def event(category: str, **args: Any) -> str:
    about = {"ph": "X", "cat": category, "name": "a", "pid": 1, "tid": "t", "ts": 1.5, "dur": 2}
    return json.dumps({**about, "args": args}, separators=(",", ":"))


@pytest.mark.parametrize("category", ["cpu_op", "kernel", "gpu_memcpy", "cuda_sync", "unknown"])
def test_the_scan_knows_every_field(category: str) -> None:
    for field in msgspec.structs.fields(Args):
        is_id = field.type not in (str, msgspec.Raw)
        values: list[Any] = [0, 7, -1] if is_id else ["text", 'a "quoted" text', [1, 2, 3], 7]
        for value in values:
            text = trace_of(event(category), event(category, **{field.encode_name: value}), event(category))
            assert_same(of_text(text), without_the_scan(text))
    plain = [field for field in msgspec.structs.fields(Args) if field.encode_name not in FROM_THE_SECOND_PROFILER]
    usual = {field.encode_name: "text" if field.type is str else 7 for field in plain}
    assert scan.scanned(f"[{event(category, **usual)}]".encode()) is not None


ODD = [
    '{"ph":"X","ts":1e3,"dur":1}',
    '{"ph":"X","ts":-1,"dur":1}',
    '{"ph":"X","ts":01,"dur":1}',
    '{"ph":"X","ts":1.,"dur":1}',
    '{"ph":"X","ts":1,"ts":2,"dur":1}',
    '{"ph":"X","ts":1,"dur":1,"args":{"stream":1.0}}',
    '{"ph":"X","ts":1,"dur":1,"args":{"stream":1,"stream":2}}',
    '{"ph":"X","ts":1,"dur":1,"args":{"stream":-0}}',
    '{"ph":"X","ts":1,"dur":1,"args":{"a":[1,]}}',
    '{"ph":"X","ts":1,"dur":1,"args":{"a":tru}}',
    '{"ph":"X","ts":1,"dur":1,"args":' + '{"a":' * 70 + "1" + "}" * 71,
    '{"ph":"X","ts":1,"dur":1,"name":"\\u0041"}',
    '{"ph":"X","ts":1,"dur":1,"name":"\\x"}',
    '{"ph":"X","ts":1,"dur":1,"name":"a\tb"}',
    '{"ph":"X","ts":1,"dur":1,"name":"Memcpy","args":{"copy kind":"HtoD"}}',
    '{"ph":"X","ts":1,"name":"a"}',
    '{"ph":"X","ts":1,"dur":1,"pid":1.5}',
    "{}",
    "[]",
    "1",
]


@pytest.mark.parametrize("odd", ODD)
def test_the_scan_leaves_what_is_unusual_to_the_decoder(odd: str) -> None:
    assert scan.scanned(f"[{odd}]".encode()) is None
    text = trace_of(event("cpu_op"), odd, event("cpu_op"))
    assert_same(of_text(text), without_the_scan(text))


@given(st.integers(0, 3 * 10**15), st.integers(0, 10**15 - 1), st.integers(0, 15))
@example(1, 5, 4)  # half a ns: to the even one
@example(1, 15, 4)
def test_times_go_to_the_nearest_ns(whole: int, part: int, places: int) -> None:
    time = f"{whole}.{part % 10**places:0{places}}" if places else str(whole)
    text = trace_of(f'{{"ph":"X","ts":{time},"dur":{time},"name":"a"}}')
    assert_same(of_text(text), without_the_scan(text))


@pytest.mark.parametrize("text", [b"", b"[", b"]", b"[]", b"[{", b'[{"', b'[{"ph', b'[{"ph":"X"', b"[{}]x", b"[1]"])
def test_the_scan_never_reads_beyond_the_text(text: bytes) -> None:
    whole = f"[{event('cpu_op', stream=1)}]".encode()
    assert (scan.scanned(text) is None) == (text != b"[]")
    for end in range(len(whole)):
        assert scan.scanned(whole[:end]) is None


def test_numbers_of_texts_are_those_of_the_decoder_in_every_piece() -> None:
    events = [event("cpu_op", **{"Call stack": f"s{i % 5}", "Input Dims": [[i % 3]]}) for i in range(200)]
    events[100] = events[100].replace('"a"', '"\\u0041"')  # this piece is decoded
    text = trace_of(*events)
    found = of_text(text, 1000)
    assert_same(found, without_the_scan(text, 1000))
    assert isinstance(found, Events)
    assert found.strings[found.name[100]] == "A"
