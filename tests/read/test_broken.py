"""What is cut off, damaged or no trace at all: whatever is whole is read, the rest is counted or refused."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from read.reference import Row, reading, spelled_out

from unstall.errors import TraceError
from unstall.read.events import Events
from unstall.read.kineto import events_of, read


def event(number: int, **more: Any) -> dict[str, Any]:
    args = {"External id": number, "Input Dims": [[number]], "of use": [{"a": 1}, {"b": "}, {"}]}
    return {"ph": "X", "cat": "cpu_op", "name": f"op {number}", "ts": 10 + number, "dur": 1.5, "args": args} | more


def document(events: list[Any]) -> bytes:
    around = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}
    return json.dumps(around | {"traceName": "}], {"}, indent=1).encode()


# Packets of a protobuf: a timestamp, a sequence, a track's name, a payload that is longer than its first bytes.
PERFETTO = (
    bytes([0x0A, 14, 0x40, 0x80, 0x94, 0xEB, 0xDC, 0x03, 0x50, 0x01, 0x68, 0x01, 0x5A, 0x02, 0x48, 0x01])
    + bytes([0x0A, 123, 0xE2, 0x03, 120])
    + b"main thread of a program".ljust(120, b"\0")
)


WHOLE = document([event(i) for i in range(6)])
ROWS = reading(WHOLE).rows


def of_text(text: bytes, piece_bytes: int = 200) -> Events:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(text), 70):
            yield text[start : start + 70]

    return events_of(blocks(), Path("trace.json"), piece_bytes)


def rows_of(events: Events) -> list[Row]:
    return spelled_out(events).rows


@pytest.mark.parametrize("piece_bytes", [1, 200, 1 << 20])
def test_text_cut_at_any_byte_gives_the_events_before_it(piece_bytes: int) -> None:
    text = document([event(i) for i in range(3)])
    ends = [i + 1 for i in range(len(text)) if text.startswith(b"}\n  }", i - 4)]
    assert len(ends) == 3
    read_at_all = 0
    for length in range(len(text)):
        try:
            events = of_text(text[:length], piece_bytes)
        except TraceError:
            assert length < ends[0]  # no event is whole: there is nothing to read
            continue
        read_at_all += 1
        whole = sum(end <= length for end in ends)
        assert rows_of(events) == ROWS[:whole]
        assert not events.meta.sound
        assert f"byte {length:,} of the text" in events.meta.notes[0]
    assert read_at_all > len(text) // 2


def test_a_packed_file_cut_at_any_byte_gives_events_from_the_first_on(tmp_path: Path) -> None:
    packed = gzip.compress(WHOLE)
    path = tmp_path / "trace.json.gz"
    most = 0
    for length in range(len(packed)):
        path.write_bytes(packed[:length])
        try:
            events = read(path)
        except TraceError:
            continue
        rows = rows_of(events)
        assert rows == ROWS[: len(rows)]
        assert not events.meta.sound
        assert "gzip data ends early" in events.meta.notes[0]
        most = max(most, len(rows))
    assert most == len(ROWS)


@given(st.data())
def test_a_packed_file_with_a_wrong_bit_is_never_taken_for_sound(data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(WHOLE, mtime=0))
    at = data.draw(st.integers(10, len(packed) - 1))
    packed[at] ^= 1 << data.draw(st.integers(0, 7))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        path.write_bytes(packed)
        try:
            events = read(path)
        except TraceError:
            return
    assert not events.meta.sound or rows_of(events) == ROWS


EDITS = st.lists(
    st.tuples(
        st.integers(0, len(WHOLE)),
        st.integers(0, 40),
        st.one_of(
            st.binary(max_size=4),
            st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b"}, {", b'{"ph":"X"', b"null", b"1e999", b"9" * 30]),
        ),
    ),
    min_size=1,
    max_size=4,
)


@given(EDITS, st.integers(1, 2000))
def test_no_text_at_all_gives_any_other_error(edits: list[tuple[int, int, bytes]], piece_bytes: int) -> None:
    text = WHOLE
    for start, length, instead in edits:
        text = text[:start] + instead + text[start + length :]
    try:
        events = of_text(text, piece_bytes)
    except TraceError:
        return
    assert all(text.encode() is not None for text in events.strings)
    assert (events.duration >= 0).all()


def test_a_missing_quote_costs_one_event() -> None:
    text = WHOLE.replace(b'"op 2"', b'"op 2', 1)
    events = of_text(text)
    assert rows_of(events) == ROWS[:2] + ROWS[3:]
    start = text.index(b'{\n   "ph": "X",\n   "cat": "cpu_op",\n   "name": "op 2')
    assert events.meta.notes == (f"dropped 1 event that could not be read, the first at byte {start:,} of the text",)
    assert not events.meta.sound


@pytest.mark.parametrize(
    "broken", [b"{]", b"7", b'{"ph": "X", "ts": 01}', b'{"ph": "X", "ts": }', b'{"no": "phase"}', b"[]"]
)
def test_what_is_no_event_is_dropped_and_counted(broken: bytes) -> None:
    text = document([event(0), "here", event(1)]).replace(b'"here"', broken)
    events = of_text(text)
    assert [row["name"] for row in rows_of(events)] == ["op 0", "op 1"]
    assert events.meta.notes[0].startswith("dropped 1 event that could not be read")


def test_an_event_nested_too_deeply_is_dropped() -> None:
    text = document([event(0), "here", event(1)]).replace(
        b'"here"', b'{"ph": "X", "args": ' + b"[" * 99_999 + b"]" * 99_999 + b"}"
    )
    assert [row["name"] for row in rows_of(of_text(text))] == ["op 0", "op 1"]


def test_negative_durations_count_as_nothing_and_are_counted() -> None:
    events = of_text(document([event(0, dur=-2), event(1, dur=-0.001), event(2)]))
    assert events.duration.tolist() == [0, 0, 1500]
    assert events.meta.notes == ("set the negative duration of 2 events to 0",)
    assert events.meta.sound


def test_events_without_a_time_are_dropped_and_counted() -> None:
    timeless = event(1)
    del timeless["ts"]
    events = of_text(document([event(0), timeless, event(2, ts=10**400)]))
    assert [row["name"] for row in rows_of(events)] == ["op 0"]
    assert events.meta.notes == (
        "dropped 1 event that had no time",
        "dropped 1 event that had a time out of range",
    )
    assert not events.meta.sound


def test_numbers_that_are_given_as_text_are_no_damage() -> None:
    """ROCm writes the arguments of its calls so."""
    events = of_text(document([event(0, dur="1.5", args={"External id": "7", "bytes": "9216"})]))
    assert (events.duration.tolist(), events.meta.notes) == ([1500], ())
    assert rows_of(events) == rows_of(of_text(document([event(0, args={"External id": 7, "bytes": 9216})])))


def test_what_was_repaired_is_counted_and_sound() -> None:
    text = document([event(0), event(1, name=7), event(2)]).replace(b'"op 0"', b'"C:\\Users\\\x01"')
    events = of_text(text)
    assert [row["name"] for row in rows_of(events)] == ["C:\\Users\\ ", "7", "op 2"]
    assert events.meta.sound
    assert events.meta.notes == (
        "repaired the text of 1 event (control characters, bad UTF-8 or escapes, NaN)",
        "replaced values of the wrong type in 1 event",
    )


def test_a_damaged_checksum_costs_no_event_but_the_trust(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(WHOLE))
    packed[-5] ^= 1
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed)
    events = read(path)
    assert rows_of(events) == ROWS
    assert "gzip data is damaged" in events.meta.notes[0]
    assert not events.meta.sound


def test_members_of_a_gzip_file_are_one_text_and_padding_is_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(WHOLE[:300]) + gzip.compress(b"") + gzip.compress(WHOLE[300:]) + bytes(512))
    events = read(path)
    assert rows_of(events) == ROWS
    assert events.meta.notes == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "there is nothing in it"),
        (b" \n", "there is nothing in it"),
        (b"hello", "byte 0: b'h' begins neither an object nor a list"),
        (b"\0" * 99, "begins neither an object nor a list"),
        (b"{}", 'there is no "traceEvents" in it'),
        (b'{"schemaVersion": 1, "a": {"traceEvents": []}}', 'there is no "traceEvents" in it'),
        (b'{"schemaVersion": 1, "a', "cut off at byte 23 of the text, before the first event"),
        (b'{"traceEvents": null}', 'byte 16: "traceEvents" is not a list'),
        (b"[1, 2, {}]", "byte 1 of its text: what is listed here are no events"),
        (b"SQLite format 3\0" + bytes(99), "SQLite database, such as Nsight Systems exports"),
        (b"PK\3\4" + bytes(99), "zip archive; unpack it first"),
        (
            PERFETTO,
            "this is a binary trace (Perfetto's .pftrace, or the .xplane.pb of JAX and TensorFlow), which is not read",
        ),
        (PERFETTO[:20], "this is a binary trace (Perfetto's .pftrace"),
        (gzip.compress(PERFETTO, mtime=0), "this is a binary trace (Perfetto's .pftrace"),
        (zlib.compress(b"[]", wbits=31)[:9], "its gzip data ends early"),
        (b"\x1f\x8b\x08\0" + bytes(99), "gzip data is damaged"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


def test_a_packed_database_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(99)))
    with pytest.raises(TraceError, match="Nsight Systems"):
        read(path)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.json: cannot be read: No such file"):
        read(tmp_path / "nowhere.json")
    (tmp_path / "train.trace.json.gz").touch()
    with pytest.raises(TraceError, match=r"No such file or directory; did you mean \S+/train\.trace\.json\.gz\?$"):
        read(tmp_path / "train.trace.json")
    with pytest.raises(TraceError, match=r"this is a directory; give the trace file in it, or .*: unstall fleet /"):
        read(tmp_path)
    (tmp_path / "train-2.trace.json.gz").touch()
    with pytest.raises(TraceError, match=r"several files match: .*: unstall fleet '\S+/\*\.trace\.json\.gz'$"):
        read(tmp_path / "*.trace.json.gz")


@pytest.mark.parametrize("start", [b"\n", b"\n\n", b"\n  ", b"\n\t", b"\r\n"])
def test_a_line_break_before_the_text_does_not_make_it_protobuf(start: bytes) -> None:
    assert rows_of(of_text(start + WHOLE)) == ROWS
    assert len(of_text(start + WHOLE.replace(b'"op 0"', b'"op \x01"')).name) == len(ROWS)


@pytest.mark.parametrize("text", [b"[]", b'{"traceEvents": []}', b'\xef\xbb\xbf {"traceEvents": [ ]} \n'])
def test_no_events_are_a_trace(text: bytes) -> None:
    events = of_text(text)
    assert len(events.name) == 0
    assert events.meta.notes == ()
    assert events.meta.sound
