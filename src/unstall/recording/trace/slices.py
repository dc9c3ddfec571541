"""Finds out how long threads spent on source lines. A slice is the time that one call of a function
spends on one line.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unstall.cupti.decode import outermost
from unstall.frameworks import MODULE_CALL, is_framework
from unstall.lines.clock import FILE
from unstall.lines.places import Frame, LinePlaces
from unstall.lines.reference import ENTRY, HEADER, HEADER_BYTES, MAGIC, NOWHERE
from unstall.timeline.columns import I32, I64
from unstall.timeline.grouping import groups

_ENTRY = np.dtype([("time", "<i8"), ("place", "<i4"), ("thread", "<u2"), ("depth", "<u2")])
_LEAST_NS = 20_000  # shorter slices of the line clock are left out if they have no call
# If a call has frames that the previous call did not have, they were entered in between; the time is unknown. In
# torch.profiler's traces with stacks, 73 % of the time between two such calls belongs to these frames if it is up to
# 200 µs, and 41 % if it is up to 1 ms.
_ENTERED_NS = 200_000


@dataclass(frozen=True, eq=False, slots=True)
class Slices:
    """How long threads spent on source lines: a table of slices, sorted by thread. A slice is the
    time that one call of a function (a frame) spends on one source line.

    The slices of the functions that a line calls are within the line's slice in time, and come
    after it in the table.
    """

    thread: I64
    start: I64
    end: I64
    frame: I32  # index of the slice's frame
    frames: list[Frame]

    def __len__(self) -> int:
        return len(self.start)


_NO_TIMES = np.zeros(0, np.int64)
NONE = Slices(_NO_TIMES, _NO_TIMES, _NO_TIMES, np.zeros(0, np.int32), [])


def of_calls(
    calls: np.ndarray, stack: I32, places: LinePlaces, moments: tuple[I64, I64] = (_NO_TIMES, _NO_TIMES)
) -> Slices:
    """Makes slices from the call stacks of a program's driver calls. A slice is the time that one
    frame spends on one source line.

    Three kinds of frames become slices: frames of the user's code, frames of frameworks that the
    innermost user frame called, and torch's outermost call of a module. The call of a module
    distinguishes the model from its submodules.

    A frame of a call is new if the stack of the thread's previous call does not contain the frame.
    New frames begin at the latest of three times: 200 µs before the call, the end of the thread's
    previous call, and the last of the thread's `moments` before the call.

    Args:
        calls: The driver calls, sorted by thread and start.
        stack: The number of the stack of each call; -1 if the call has no stack.
        places: The frames of each stack.
        moments: (threads, times in ns), two columns: times at which a step or a watched function
            began or ended on a thread.
    """
    frames: dict[Frame, int] = {}
    known = sorted(places.stacks)
    chains = [_chain(places.stacks[number], frames) for number in known]
    depth = max(map(len, chains), default=0)
    table = np.full((len(chains) + 1, depth), -1, np.int32)
    for row, chain in enumerate(chains):
        table[row, : len(chain)] = chain
    row_of = np.full(max(known, default=-1) + 2, len(chains), np.int64)
    row_of[known] = np.arange(len(known))
    inside = (stack >= 0) & (stack < len(row_of) - 1)
    rows = table[row_of[np.where(inside, stack, -1)]]

    thread = calls["thread"].astype(np.int64)
    start, end = calls["start"].astype(np.int64), calls["end"].astype(np.int64)
    entered = _entered(thread, start, end, moments)
    same = np.append(False, thread[1:] == thread[:-1])
    parts = []
    for level in range(depth):
        frame = rows[:, level]
        same &= np.append(False, frame[1:] == frame[:-1])
        first = np.flatnonzero(~same & (frame >= 0))
        stops = np.append(np.flatnonzero(~same), len(frame))
        last = stops[np.searchsorted(stops, first, side="right")] - 1
        parts.append((thread[first], entered[first], end[last], frame[first], np.full(len(first), level)))
    return _nested(parts, list(frames))


def _entered(thread: I64, start: I64, end: I64, moments: tuple[I64, I64]) -> I64:
    """Returns, for each call, the time in ns at which the call's new frames are assumed to have begun."""
    entered = start.copy()
    others = {number: np.sort(moments[1][mine]) for number, mine in groups(moments[0])}
    for number, mine in groups(thread):
        since = np.append(start[mine[0]], np.maximum.accumulate(end[mine])[:-1])
        if number in others:
            last = np.searchsorted(others[number], start[mine], side="right") - 1
            since = np.where(last >= 0, np.maximum(since, others[number][np.maximum(last, 0)]), since)
        entered[mine] = np.minimum(start[mine], np.maximum(since, start[mine] - _ENTERED_NS))
    return entered


def _chain(stack: tuple[Frame, ...], frames: dict[Frame, int]) -> list[int]:
    """Returns those frames of a stack that become slices, outermost first, as indices in `frames`.
    Adds a frame to `frames` if it is not there yet.
    """
    users = [not is_framework(file) for file, _, _ in stack]
    innermost = users.index(True) if True in users else len(stack)
    model = next((row for row in reversed(range(len(stack))) if not users[row] and _calls_a_module(stack[row])), -1)
    kept = [frame for row, frame in enumerate(stack) if row <= innermost or users[row] or row == model]
    return [frames.setdefault(frame, len(frames)) for frame in reversed(kept)]


def _calls_a_module(frame: Frame) -> bool:
    file, _, function = frame
    return MODULE_CALL.search(f"{file}: {function}") is not None


def of_clock(folder: Path, places: LinePlaces, calls: np.ndarray, off_ns: int = 0) -> Slices:
    """Makes slices from the entries of the line clock, which records each change of the line that a
    thread runs. A slice is the time that one frame spends on one source line.

    Slices shorter than 20 µs are dropped unless one of the `calls` starts in them. The slice of a
    thread's last line lasts until the end of the thread's last call.

    Args:
        folder: The recording's folder.
        places: The lines to which the entries refer.
        calls: The driver calls of the program.
        off_ns: Largest offset between the clock of the calls and the line clock, in ns. If a change
            of line is inside a call, and nearer than `off_ns` to the call's start or end, the
            change is moved to this start or end.
    """
    log = _entries(folder)
    # The disk may have been full, so that a line or a thread has no description.
    log = log[np.isin(log["thread"], list(places.clocked))]
    frames = dict.fromkeys(places.lines.values())
    number = {frame: row for row, frame in enumerate(frames)}
    frame_of = np.full(max([*places.lines, int(log["place"].max(initial=0))]) + 2, -1, np.int32)
    for at, frame in places.lines.items():
        frame_of[at] = number[frame]
    native = np.zeros(max(places.clocked, default=-1) + 2, np.int64)
    for number_of_thread, native_id in places.clocked.items():
        native[number_of_thread] = native_id
    parts = []
    for index in np.unique(log["thread"]).tolist():
        mine = log[log["thread"] == index]
        made = calls[calls["thread"] == native[index]]
        mine["time"] = _beside(mine["time"], made, off_ns)
        called = np.sort(made["start"].astype(np.int64))
        over = max(int(mine["time"][-1]), int(made["end"].max(initial=0)))
        for level in range(1, int(mine["depth"].max(initial=0)) + 1):
            # A deeper entry does not change this level.
            near = mine[mine["depth"] <= level]
            if not len(near):
                continue  # the entries were overwritten in a full ring
            place = np.where(near["depth"] == level, near["place"], NOWHERE)
            change = np.flatnonzero(np.append(True, place[1:] != place[:-1]))
            time, place = near["time"][change], place[change]
            end = np.append(time[1:], over)
            used = np.searchsorted(called, end) > np.searchsorted(called, time)
            kept = (frame_of[place] >= 0) & ((end - time >= _LEAST_NS) | used)
            count = int(kept.sum())
            parts.append(
                (np.full(count, native[index]), time[kept], end[kept], frame_of[place[kept]], np.full(count, level))
            )
    return _nested(parts, list(frames))


def _beside(time: I64, calls: np.ndarray, off_ns: int) -> I64:
    """Moves times that are inside a call, and less than `off_ns` from its start or end, to this
    start or end. Returns all times in the order in which they were given.
    """
    calls = outermost(calls)
    start, end = calls["start"].astype(np.int64), calls["end"].astype(np.int64)
    at = np.searchsorted(start, time, side="right") - 1
    if not off_ns or not len(start):
        return time
    since, until = time - start[at], end[at] - time
    inside = (at >= 0) & (until > 0) & (np.minimum(since, until) < off_ns)
    return np.where(inside, np.where(since <= until, start[at], end[at]), time)


def _entries(folder: Path) -> np.ndarray:
    """Returns the entries that the line clock wrote to its file, oldest first. The file is a ring buffer."""
    with (folder / FILE).open("rb") as file:
        try:
            magic, capacity, written = HEADER.unpack(file.read(HEADER.size))
        except struct.error:
            return np.zeros(0, _ENTRY)
        if magic != MAGIC:
            return np.zeros(0, _ENTRY)
        file.seek(HEADER_BYTES)
        data = file.read(min(written, capacity) * ENTRY.size)
        ring = np.frombuffer(data, _ENTRY, count=len(data) // ENTRY.size)
    first = written % capacity if written > capacity else 0
    return np.concatenate((ring[first:], ring[:first]))


def _nested(parts: list[tuple[I64, I64, I64, I32, I64]], frames: list[Frame]) -> Slices:
    if not parts:
        return NONE
    thread, start, end, frame, level = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((level, -end, start, thread))
    return Slices(thread[order], start[order], end[order], frame[order].astype(np.int32), frames)
