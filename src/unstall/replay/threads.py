"""Which host threads matter to the device, and which of them are one thread of work that is handed to and fro.

Autograd runs the backward pass on a thread of its own while the caller waits for it. Nothing in a trace says so; but
two threads of which one is idle whenever the other works are, to the device, one.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, HostKind, Timeline
from unstall.timeline.grouping import groups, union

_IDLE_NS = 100_000
_ALONE_SHARE = 0.02  # of a thread's time at work that may coincide with another's, by the skew of their hand-over


def merge_threads(timeline: Timeline, rows: I64, main: int) -> I32:
    """By thread of the timeline: the program's thread it is part of, 0 that of the steps; -1 for those without `rows`.

    `rows` are the host events that become instructions.
    """
    host = timeline.host
    working = np.flatnonzero((host.kind < HostKind.ANNOTATION) & (host.parent < 0) | _top_level(timeline))
    spans = {
        thread: union(host.start[working[mine]], host.end[working[mine]])
        for thread, mine in groups(host.thread[working])
    }
    first = {thread: int(host.start[rows[mine]].min()) for thread, mine in groups(host.thread[rows])}
    relevant = [main, *sorted((thread for thread in first if thread != main), key=lambda thread: first[thread])]
    merged: list[tuple[I64, I64]] = []
    part_of = np.full(len(timeline.threads), -1, dtype=np.int32)
    nothing = np.zeros(0, dtype=np.int64)
    for thread in relevant:
        start, end = spans.get(thread, (nothing, nothing))
        length = int((end - start).sum())
        for number, (begun, done) in enumerate(merged):
            if _common(start, end, begun, done) <= _ALONE_SHARE * length:
                part_of[thread] = number
                merged[number] = union(np.append(begun, start), np.append(done, end))
                break
        else:
            part_of[thread] = len(merged)
            merged.append((start, end))
    return part_of


def find_joins(time: I64, end: I64, thread: I32, threads: int) -> tuple[I64, I64]:
    """Instructions of other threads than the first, after which they had been idle, and what woke each.

    `time`, `end` and `thread` are of instructions, as recorded; of `threads` the first is that of the steps. A thread
    that went on while the first was at work is taken to have waited for what that had done last.
    """
    waking, woken = [], []
    main = np.flatnonzero(thread == 0)
    main = main[np.argsort(end[main], kind="stable")]
    for number in range(1, threads):
        mine = np.flatnonzero(thread == number)
        mine = mine[np.argsort(time[mine], kind="stable")]
        before = np.append(np.iinfo(np.int64).min // 2, np.maximum.accumulate(end[mine])[:-1]) if len(mine) else mine
        last = np.searchsorted(end[main], time[mine], side="right") - 1
        by = main[np.maximum(last, 0)] if len(main) else mine
        known = (last >= 0) & (time[mine] - before >= _IDLE_NS) & (end[by] > before) & (time[by] < time[mine])
        waking.append(by[known])
        woken.append(mine[known])
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *woken]), np.concatenate([nothing, *waking])


def _top_level(timeline: Timeline) -> np.ndarray:
    """Operators and calls that no other operator or call encloses, whatever frames and annotations do."""
    host = timeline.host
    counts = host.kind < HostKind.ANNOTATION
    parent = host.parent
    above = parent >= 0
    chosen: np.ndarray = counts & (~above | ~counts[np.maximum(parent, 0)])
    return chosen


def _common(start: I64, end: I64, begun: I64, done: I64) -> int:
    """The length of the intersection of two unions of intervals."""

    def covered(times: I64) -> I64:
        total = np.append(0, np.cumsum(done - begun))
        at = np.searchsorted(begun, times, side="right")
        inside = (
            np.minimum(times, done[np.maximum(at - 1, 0)]) - begun[np.maximum(at - 1, 0)] if len(begun) else times * 0
        )
        return total[np.maximum(at - 1, 0)] + np.where(at > 0, np.maximum(inside, 0), 0)

    return int((covered(end) - covered(start)).sum()) if len(begun) else 0
