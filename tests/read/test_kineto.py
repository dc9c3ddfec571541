"""The reader against the slow, obvious one, on made traces and on all recorded ones."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from read.documents import documents
from read.reference import Reading, reading, spelled_out
from recordings import ALL

from unstall.read.events import Events
from unstall.read.kineto import events_of, read
from unstall.read.pieces import Cutter
from unstall.read.text_window import TextWindow


def in_blocks(text: bytes, block_bytes: int = 1 << 20, piece_bytes: int = 1 << 19) -> Events:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(text), block_bytes):
            yield text[start : start + block_bytes]

    return events_of(blocks(), Path("made.json"), piece_bytes)


class Taken:
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def take(self, piece: memoryview | bytes) -> bool:
        self.pieces.append(bytes(piece))
        return True

    def repair(self, event: bytes) -> bool:
        return False


def assert_same(found: Reading, expected: Reading) -> None:
    assert found.rows == expected.rows
    assert found.arrows == expected.arrows
    assert found.memory == expected.memory
    assert found.labels == expected.labels
    assert found.zero == expected.zero


@given(documents(), st.integers(1, 300), st.integers(1, 300))
def test_clean_traces_wherever_they_are_cut(text: bytes, block_bytes: int, piece_bytes: int) -> None:
    events = in_blocks(text, block_bytes, piece_bytes)
    assert_same(spelled_out(events), reading(text))
    assert events.meta.sound or "had no time" in events.meta.notes[0]


@given(documents(dirty=True), st.integers(1, 300), st.integers(1, 300))
def test_dirty_traces_wherever_they_are_cut(text: bytes, block_bytes: int, piece_bytes: int) -> None:
    assert_same(spelled_out(in_blocks(text, block_bytes, piece_bytes)), reading(text))


@given(documents(digits=7))
def test_times_of_more_digits_than_a_clock_has_go_to_the_nearest_ns(text: bytes) -> None:
    assert_same(spelled_out(in_blocks(text)), reading(text))


@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_recorded_traces(path: Path) -> None:
    expected = reading(gzip.decompress(path.read_bytes()))
    events = read(path)
    assert events.meta.notes == ()
    assert_same(spelled_out(events), expected)


@pytest.mark.parametrize("last", [b'{"c": 3}', b'{"c": [{"d": 4}]}'])
def test_the_last_event_is_no_piece_of_its_own_unless_its_end_is_hard_to_see(last: bytes) -> None:
    window, sink = TextWindow(iter([b'[{"a": [{}]}, {"b": 2}, %b ], "e": []}' % last])), Taken()
    window.more()
    Cutter(window, sink, Path("made.json")).run()
    first = b'[{"a": [{}]}, {"b": 2}'
    assert sink.pieces == ([b"%b, %b]" % (first, last)] if b"[" not in last else [first + b"]", b"[%b]" % last])
    assert bytes(window.text) == b', "e": []}'
