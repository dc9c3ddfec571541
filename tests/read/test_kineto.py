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


def in_blocks(text: bytes, block_bytes: int = 1 << 20, piece_bytes: int = 1 << 19) -> Events:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(text), block_bytes):
            yield text[start : start + block_bytes]

    return events_of(blocks(), Path("made.json"), piece_bytes)


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
