"""Where threads were, as slices of time that nest."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from unstall.lines.places import Frame, LinePlaces
from unstall.lines.reference import ENTRY, HEADER, HEADER_BYTES, MAGIC, NOWHERE
from unstall.recording.trace import slices
from unstall.recording.trace.slices import Slices

_CALL = np.dtype([("start", "<u8"), ("end", "<u8"), ("thread", "<u4")])
_TRAIN, _LIBRARY, _TORCH = "train.py", "timm/models.py", "torch/nn/modules/module.py"
_FRAMES = [(file, line, "run") for file in (_TRAIN, _LIBRARY, _TORCH, "numpy/core.py") for line in (1, 2)]
_FRAMEWORKS = (_TORCH, "numpy/core.py")

Shown = tuple[int, int, int, Frame]


def _calls(rows: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """From thread, start and end."""
    return np.array([(start, end, thread) for thread, start, end in rows], _CALL)


def _shown(found: Slices) -> list[Shown]:
    columns = (found.thread.tolist(), found.start.tolist(), found.end.tolist(), found.frame.tolist())
    return [(thread, start, end, found.frames[frame]) for thread, start, end, frame in zip(*columns, strict=True)]


def _counted(stack: tuple[Frame, ...]) -> list[Frame]:
    """Frames that count, outermost first: the user's, and those of frameworks within the innermost of them."""
    users = [frame[0] not in _FRAMEWORKS for frame in stack]
    if not any(users):
        return list(reversed(stack))
    return [frame for row, frame in enumerate(stack) if users[row] or not any(users[:row])][::-1]


def _assert_nested(rows: list[Shown]) -> None:
    """Each row lies within the last one before it of its thread that has not ended, or begins after that."""
    open_: list[Shown] = []
    for row in rows:
        thread, start, end, _ = row
        while open_ and (open_[-1][0] != thread or open_[-1][2] <= start < end):
            open_.pop()
        assert start <= end
        if open_ and open_[-1][2] > start:
            assert open_[-1][1] <= start
            assert end <= open_[-1][2]
        open_.append(row)
    assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)


_STACKS = st.lists(st.lists(st.sampled_from(_FRAMES), min_size=1, max_size=6).map(tuple), min_size=1, max_size=4)
_STEPS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 4), st.integers(-2, 5)), min_size=1, max_size=25
)


@given(stacks=_STACKS, steps=_STEPS, sparse=st.integers(1, 3))
def test_each_call_lies_within_slices_of_its_own_stack_and_all_slices_nest(
    stacks: list[tuple[Frame, ...]], steps: list[tuple[int, int, int, int]], sparse: int
) -> None:
    """`steps` are a call's thread, the time before it, how long it takes, and its stack's number."""
    now = {1: 100, 2: 100}
    rows = []
    for thread, gap, length, number in steps:
        start = now[thread] + gap
        now[thread] = start + length
        rows.append((thread, start, start + length, number * sparse))
    rows.sort(key=lambda row: row[:2])
    places = LinePlaces(stacks={number * sparse: stack for number, stack in enumerate(stacks)})
    found = slices.of_calls(_calls([row[:3] for row in rows]), np.array([row[3] for row in rows], np.int32), places)
    shown = _shown(found)
    _assert_nested(shown)
    for thread, start, end, number in rows:
        around = [row[3] for row in shown if row[0] == thread and row[1] <= start and end <= row[2]]
        assert around == _counted(places.stacks.get(number, ()))


def test_calls_from_one_line_in_a_row_are_in_one_slice() -> None:
    outer, first, second = (_TRAIN, 10, "main"), (_TRAIN, 20, "step"), (_TRAIN, 21, "step")
    places = LinePlaces(stacks={0: ((_TORCH, 5, "forward"), first, outer), 1: (second, outer), 2: (outer,)})
    calls = _calls([(1, 0, 5), (1, 10, 15), (1, 20, 25), (1, 30, 35), (2, 12, 13)])
    found = slices.of_calls(calls, np.array([0, 0, 1, 2, 2], np.int32), places)
    assert _shown(found) == [
        (1, 0, 35, outer),
        (1, 0, 15, first),
        (1, 0, 15, (_TORCH, 5, "forward")),
        (1, 15, 25, second),
        (2, 12, 13, outer),
    ]


def test_frames_that_a_call_is_the_first_of_began_within_200_us_before_it() -> None:
    outer, first, second = (_TRAIN, 10, "main"), (_TRAIN, 20, "step"), (_TRAIN, 21, "step")
    places = LinePlaces(stacks={0: (first, outer), 1: (second, outer), 2: (outer,)})
    around = _calls([(1, 0, 900_000), (1, 100, 200), (1, 1_000_000, 1_000_001), (1, 1_300_000, 1_300_001)])
    found = slices.of_calls(around, np.array([0, 1, 2, 0], np.int32), places)
    assert _shown(found) == [
        (1, 0, 1_300_001, outer),
        (1, 0, 900_000, first),
        (1, 100, 200, second),
        (1, 1_100_000, 1_300_001, first),
    ]
    # A step of thread 1 is known to begin in between, and something of another thread.
    known = np.array([1, 1, 2]), np.array([1_150_000, 1_300_001, 1_200_000])
    found = slices.of_calls(around, np.array([0, 1, 2, 0], np.int32), places, known)
    assert _shown(found)[-1] == (1, 1_150_000, 1_300_001, first)


def test_torchs_outermost_call_of_a_module_counts_too() -> None:
    """It tells the model from the modules that it is made of."""
    module = (_TORCH, 1775, "_call_impl"), (_TORCH, 1764, "_wrapped_call_impl")
    layer, model, train = (("net.py", 9, "forward"), ("net.py", 5, "forward"), (_TRAIN, 2, "<module>"))
    places = LinePlaces(stacks={0: (*module, layer, *module, model, *module, train)})
    found = slices.of_calls(_calls([(1, 100, 110)]), np.array([0], np.int32), places)
    assert [found.frames[frame] for frame in found.frame.tolist()] == [
        *(train, module[1], model, layer),
        *reversed(module),
    ]


def test_no_calls_have_no_slices() -> None:
    assert len(slices.of_calls(_calls([]), np.zeros(0, np.int32), LinePlaces())) == 0
    assert len(slices.of_calls(_calls([(1, 2, 3)]), np.array([-1], np.int32), LinePlaces())) == 0
    assert (
        len(slices.of_calls(_calls([(1, 2, 3)]), np.array([4], np.int32), LinePlaces(stacks={0: (_FRAMES[0],)}))) == 0
    )


Entry = tuple[int, int, int, int]
"""Time, place, thread, depth."""


def _ring(folder: Path, entries: Sequence[Entry], capacity: int) -> None:
    """`lines.bin` after these entries were written."""
    room = bytearray(capacity * ENTRY.size)
    for number, entry in enumerate(entries):
        ENTRY.pack_into(room, number % capacity * ENTRY.size, *entry)
    head = HEADER.pack(MAGIC, capacity, len(entries)).ljust(HEADER_BYTES, b"\0")
    (folder / "lines.bin").write_bytes(head + room)


def _of_clock(entries: Sequence[Entry], places: LinePlaces, calls: np.ndarray, capacity: int = 1 << 10) -> list[Shown]:
    with TemporaryDirectory() as folder:
        _ring(Path(folder), entries, capacity)
        return _shown(slices.of_clock(Path(folder), places, calls))


def _walked(entries: Sequence[Entry], places: LinePlaces, calls: np.ndarray) -> list[Shown]:
    """The same, entry by entry."""
    found = []
    for index in {entry[2] for entry in entries}:
        mine = [entry for entry in entries if entry[2] == index]
        thread = places.clocked[index]
        made = [(int(call["start"]), int(call["end"])) for call in calls if call["thread"] == thread]
        over = max([mine[-1][0], *(end for _, end in made)])
        levels: dict[int, tuple[int, int]] = {}  # depth: place and since when
        ended = []
        for time, place, _, depth in [*mine, (over, NOWHERE, index, 0)]:
            for level in [level for level in levels if level > depth or (level == depth and levels[level][0] != place)]:
                was, since = levels.pop(level)
                ended.append((level, was, since, time))
            if depth and depth not in levels:
                levels[depth] = (place, time)
        for level, place, start, end in ended:
            if end - start >= 20_000 or any(start <= at < end for at, _ in made):
                found.append((thread, start, -end, level, places.lines[place]))
    return [(thread, start, -end, frame) for thread, start, end, _, frame in sorted(found)]


_PLACES = LinePlaces(
    lines={number: (_TRAIN, 100 + number, "step") for number in range(6)}, clocked={0: 11, 1: 12}, threads={}
)
_ENTRIES = st.lists(
    st.tuples(st.sampled_from([1, 7, 5_000, 20_000, 30_000]), st.integers(0, 5), st.integers(0, 1), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)
_TIMES = st.lists(st.tuples(st.sampled_from([11, 12, 13]), st.integers(0, 400_000)), max_size=6)


@examples(60)
@given(drawn=_ENTRIES, times=_TIMES, capacity=st.sampled_from([5, 1 << 10]))
def test_slices_of_the_clock_are_those_of_a_walk_through_its_entries(
    drawn: list[tuple[int, int, int, int]], times: list[tuple[int, int]], capacity: int
) -> None:
    entries, now = [], 1_000
    for gap, place, thread, depth in drawn:
        now += gap
        entries.append((now, place if depth else NOWHERE, thread, depth))
    calls = _calls([(thread, at, at + 9) for thread, at in sorted(times)])
    shown = _of_clock(entries, _PLACES, calls, capacity)
    assert shown == _walked(entries[-capacity:], _PLACES, calls)
    _assert_nested(shown)


def test_the_line_that_a_thread_ended_on_lasts_until_its_last_call() -> None:
    entries = [(1_000, 0, 0, 1), (2_000, 1, 0, 2)]
    shown = _of_clock(entries, _PLACES, _calls([(11, 5_000, 900_000)]))
    assert shown == [(11, 1_000, 900_000, (_TRAIN, 100, "step")), (11, 2_000, 900_000, (_TRAIN, 101, "step"))]


@examples(40)
@given(
    calls=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=6),
    times=st.lists(st.integers(0, 300), max_size=12),
)
def test_a_change_of_line_a_little_within_a_call_is_at_its_border(
    calls: list[tuple[int, int]], times: list[int]
) -> None:
    rows, now = [], 0
    for gap, length in calls:
        rows.append((11, now + gap, now + gap + length))
        rows.append((11, now + gap + length // 3, now + gap + length // 2))  # one within it
        now += gap + length
    moved = slices._beside(np.array(sorted(times), np.int64), _calls(rows), 5).tolist()
    assert moved == sorted(moved)
    for time, there in zip(sorted(times), moved, strict=True):
        around = next(((start, end) for _, start, end in rows[::2] if start < time < end), None)
        near = around is not None and min(time - around[0], around[1] - time) < 5
        assert there == (min(around, key=lambda border: abs(border - time)) if around and near else time)


def test_what_was_not_described_is_left_out() -> None:
    entries = [(1_000, 0, 0, 1), (2_000, 77, 0, 2), (40_000, 0, 0, 1), (41_000, 0, 9, 1), (99_000, NOWHERE, 9, 0)]
    shown = _of_clock(entries, _PLACES, _calls([]))
    assert shown == [(11, 1_000, 40_000, (_TRAIN, 100, "step"))]


@pytest.mark.parametrize("data", [b"", b"unstall1", b"something else entirely".ljust(64, b"\0")])
def test_a_file_without_a_header_has_no_slices(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "lines.bin").write_bytes(data)
    assert len(slices.of_clock(tmp_path, _PLACES, _calls([]))) == 0


def test_a_ring_that_is_cut_off_has_its_whole_entries(tmp_path: Path) -> None:
    _ring(tmp_path, [(1_000, 0, 0, 1), (50_000, 1, 0, 1), (90_000, 2, 0, 1)], 3)
    data = (tmp_path / "lines.bin").read_bytes()
    (tmp_path / "lines.bin").write_bytes(data[: HEADER_BYTES + 2 * ENTRY.size + struct.calcsize("<i")])
    shown = _shown(slices.of_clock(tmp_path, _PLACES, _calls([])))
    assert shown == [(11, 1_000, 50_000, (_TRAIN, 100, "step"))]
