"""Corrects the threads of API calls in traces of a recorder that puts calls on wrong threads.

The recorder is the second profiler of torch 2.15 (`torch.profiler.CuspyConfig`). It puts a call on
the thread that made it only if this thread began the recording. Calls of other threads, such as
autograd's, get separate threads, which have CUPTI's thread numbers. A call within a
`record_function` annotation has the id of the annotation. The exporter mistakes this id for an
operator's, and so puts the call on the thread of some operator. No id joins a call to the operator
that made it, so calls are joined to operators by their times.
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
_MOST_STRAYS = 256  # threads, those with most calls first; a program has a thread of autograd for each device


def at_home(events: Events, kind: I8, thread: I32, threads: Threads) -> I32:
    """Returns the thread of each event of a trace file. Moves an API call to the thread whose
    operators ran at the time of the call: some recorders put calls on wrong threads.

    If calls have the ids of their operators, no call is moved.

    Args:
        events: The events.
        kind: The HostKind of each event, or -1.
        thread: The recorded thread of each event, as a row of `threads`.
        threads: All threads.
    """
    is_call = (kind >= HostKind.LAUNCH) & (kind <= HostKind.CALL)
    ops = np.flatnonzero(kind == HostKind.OP)
    if not len(ops) or (events.external[is_call] >= 0).any() or not (events.external[ops] >= 0).any():
        return thread
    around = np.flatnonzero(np.isin(kind, (HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)))
    peopled = np.zeros(len(threads), dtype=np.bool_)
    peopled[thread[around]] = True
    calls = np.flatnonzero(is_call & (kind <= HostKind.MEMSET))
    strays = [(number, calls[mine]) for number, mine in groups(thread[calls]) if not peopled[number]]
    lone = _outside(events, np.flatnonzero(is_call & peopled[thread]), ops, thread)
    if not (strays or len(lone)):
        return thread
    homes = [(number, _Nested(events, ops[mine], kind)) for number, mine in groups(thread[ops])]
    busy = dict(groups(thread[calls]))
    new = np.arange(len(threads), dtype=np.int32)
    taken: set[int] = set()
    for number, mine in sorted(strays, key=lambda stray: -len(stray[1]))[:_MOST_STRAYS]:
        near = [home for home in homes if threads.process[home[0]] == threads.process[number] and home[0] not in taken]
        found = min(_fits(events, mine, near[:_RIVALS], calls, busy), default=None)
        if found:
            new[number] = found[1]
            taken.add(found[1])
    moves = is_call & (new[thread] != thread)
    result = np.where(moves, new[thread], thread).astype(np.int32)
    if len(lone):
        homes = [(number, _Nested(events, around[mine], kind)) for number, mine in groups(thread[around])]
        result[lone] = _closest(events, lone, homes[:_RIVALS], thread, threads)
    return result


def _outside(events: Events, calls: I64, ops: I64, thread: I32) -> I64:
    """Returns those of `calls` that are outside of all operators of their own thread."""
    inside = np.zeros(len(calls), dtype=np.bool_)
    time = _middle(events, calls)
    open_on = dict(groups(thread[ops]))
    for number, mine in groups(thread[calls]):
        if number in open_on:
            rows = ops[open_on[number]]
            rows = rows[np.argsort(events.start[rows], kind="stable")]
            ends = np.maximum.accumulate(events.start[rows] + events.duration[rows])
            last = np.searchsorted(events.start[rows], time[mine], side="right") - 1
            inside[mine] = (last >= 0) & (ends[np.maximum(last, 0)] >= time[mine])
    return calls[~inside]


def _closest(events: Events, calls: I64, homes: list[tuple[int, _Nested]], thread: I32, threads: Threads) -> I32:
    """Returns, for each call, the thread that has the shortest event around the call. Only threads
    of the call's process count. Returns the call's own thread if no event is around the call.

    The shortest event is taken because a thread that waits for another thread is inside a long
    event.
    """
    result = thread[calls]
    shortest = np.full(len(calls), np.iinfo(np.int64).max)
    for number, operators in homes:
        length = operators.around(_middle(events, calls))
        is_closer = (length >= 0) & (length < shortest) & (threads.process[thread[calls]] == threads.process[number])
        shortest[is_closer] = length[is_closer]
        result[is_closer] = number
    return result


def _middle(events: Events, rows: I64) -> I64:
    """Returns the middle of each event's interval. The middle is used because the clocks of calls and of operators may
    differ a little.
    """
    return events.start[rows] + events.duration[rows] // 2


class _Nested:
    """The events of one thread, and for each event the event that encloses it."""

    def __init__(self, events: Events, rows: I64, kind: I8) -> None:
        start, end = events.start[rows], events.start[rows] + events.duration[rows]
        order = np.lexsort((-end, start))
        self.start, self.end = start[order], end[order]
        self.parent = find_parents(kind[rows[order]], np.zeros(len(rows), dtype=np.int32), self.start, self.end)

    def around(self, time: I64) -> I64:
        """Returns, for each of the given times, the length in ns of the innermost event that runs
        at this time, or -1 if no event runs.
        """
        last = (np.searchsorted(self.start, time, side="right") - 1).astype(np.int32)
        inner = first_reaching(self.parent, self.end, last, time)
        length = self.end[inner] - self.start[inner]
        return np.where(inner >= 0, length, -1)


def _fits(
    events: Events, mine: I64, homes: list[tuple[int, _Nested]], calls: I64, busy: dict[int, I64]
) -> Iterator[tuple[int, int]]:
    """Yields `(ns, thread)` for each thread in `homes` that may have made the calls `mine`.

    `ns` is the total length of the innermost operators around the calls. The right thread has the
    smallest total, because its operators fit the calls most closely. A thread makes one call at a
    time, so a thread is left out if it made calls of its own at the time of the calls `mine`.
    """
    start = events.start[mine]
    end = start + events.duration[mine]
    for number, operators in homes:
        length = operators.around(_middle(events, mine))
        inside: Bool = length >= 0
        others = calls[busy[number]] if number in busy else mine[:0]
        if inside.mean() >= _MOST and not _overlap(start, end, events.start[others], events.duration[others]):
            yield int(length[inside].sum()), number


def _overlap(start: I64, end: I64, other: I64, duration: I64) -> bool:
    """Returns whether any interval [start, end) overlaps any interval [other, other + duration)."""
    order = np.argsort(start, kind="stable")
    ends = np.maximum.accumulate(end[order])
    before = np.searchsorted(start[order], other + duration, side="left") - 1
    return bool(((before >= 0) & (ends[np.maximum(before, 0)] > other)).any())
