"""Finds the threads of calls that a recorder knows only by a number of its own.

The second profiler of torch 2.15 (`torch.profiler.CuspyConfig`) puts the calls of the thread that began the recording
on that thread. Those of others, such as autograd's, stand on threads of their own, under the number that CUPTI has for
the thread. No id joins them to the operators that made them. Their times do: launches are made inside operators.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.read.events import Events
from unstall.read.nest import find_parents
from unstall.timeline.ancestry import first_reaching
from unstall.timeline.columns import I8, I32, I64, Bool, HostKind, Threads
from unstall.timeline.grouping import groups

_MOST = 0.9  # of a thread's launches are inside operators of its own; in 40 recordings with autograd's thread all are
_RIVALS = 64  # threads with operators that are looked at for one thread of calls


def at_home(events: Events, kind: I8, thread: I32, threads: Threads) -> I32:
    """Returns the thread of each row, as a row of `threads`: calls without operators move to the operators' thread.

    Nothing moves if calls have the ids of their operators. `kind` has the HostKind of each row, else -1.
    """
    is_call = (kind >= HostKind.LAUNCH) & (kind <= HostKind.CALL)
    ops = np.flatnonzero(kind == HostKind.OP)
    if not len(ops) or (events.external[is_call] >= 0).any() or not (events.external[ops] >= 0).any():
        return thread
    peopled = np.zeros(len(threads), dtype=np.bool_)
    peopled[thread[np.isin(kind, (HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON))]] = True
    calls = np.flatnonzero(is_call & (kind <= HostKind.MEMSET))
    strays = [(number, calls[mine]) for number, mine in groups(thread[calls]) if not peopled[number]]
    if not strays:
        return thread
    homes = [(number, _Operators(events, ops[mine])) for number, mine in groups(thread[ops])]
    busy = dict(groups(thread[calls]))
    new = np.arange(len(threads), dtype=np.int32)
    taken: set[int] = set()
    for number, mine in sorted(strays, key=lambda stray: -len(stray[1])):
        near = [home for home in homes if threads.process[home[0]] == threads.process[number] and home[0] not in taken]
        found = min(_fits(events, mine, near[:_RIVALS], calls, busy), default=None)
        if found:
            new[number] = found[1]
            taken.add(found[1])
    moves = is_call & (new[thread] != thread)
    return np.where(moves, new[thread], thread).astype(np.int32)


class _Operators:
    """The operators of one thread, nested."""

    def __init__(self, events: Events, rows: I64) -> None:
        start, end = events.start[rows], events.start[rows] + events.duration[rows]
        order = np.lexsort((-end, start))
        self.start, self.end = start[order], end[order]
        kind = np.full(len(rows), HostKind.OP, dtype=np.int8)
        self.parent = find_parents(kind, np.zeros(len(rows), dtype=np.int32), self.start, self.end)

    def around(self, time: I64) -> I64:
        """Returns the length in ns of the innermost operator around each time, -1 if there is none."""
        last = (np.searchsorted(self.start, time, side="right") - 1).astype(np.int32)
        inner = first_reaching(self.parent, self.end, last, time)
        length = self.end[inner] - self.start[inner]
        return np.where(inner >= 0, length, -1)


def _fits(
    events: Events, mine: I64, homes: list[tuple[int, _Operators]], calls: I64, busy: dict[int, I64]
) -> Iterator[tuple[int, int]]:
    """Yields (total ns of the innermost operators around the calls `mine`, thread) of threads that can have made them.

    The operators of the right thread fit the calls most closely. A thread makes one call at a time.
    """
    start = events.start[mine]
    end = start + events.duration[mine]
    for number, operators in homes:
        length = operators.around((start + end) // 2)  # the clocks of calls and of operators may differ a little
        inside: Bool = length >= 0
        others = calls[busy[number]] if number in busy else mine[:0]
        if inside.mean() >= _MOST and not _overlap(start, end, events.start[others], events.duration[others]):
            yield int(length[inside].sum()), number


def _overlap(start: I64, end: I64, other: I64, duration: I64) -> bool:
    """Returns whether any of the intervals [start, end) and [other, other + duration) overlap."""
    order = np.argsort(start, kind="stable")
    ends = np.maximum.accumulate(end[order])
    before = np.searchsorted(start[order], other + duration, side="left") - 1
    return bool(((before >= 0) & (ends[np.maximum(before, 0)] > other)).any())
