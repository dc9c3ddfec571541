"""Which host threads matter to the device, and which of them are one thread of work that is handed to and fro.

Autograd runs the backward pass on a thread of its own while the caller waits for it. Nothing in a trace says so; but
two threads of which one is idle whenever the other works are, to the device, one.
"""

from __future__ import annotations

import numpy as np

from unstall.grouping import groups
from unstall.timeline import I32, I64, HostKind, Timeline

_ALONE_SHARE = 0.02  # of a thread's time at work that may coincide with another's, by the skew of their hand-over


def merge_threads(timeline: Timeline, rows: I64, main: int) -> I32:
    """By thread of the timeline: the program's thread it is part of, 0 that of the steps; -1 for those without `rows`.

    `rows` are the host events that become instructions.
    """
    host = timeline.host
    working = np.flatnonzero((host.kind < HostKind.ANNOTATION) & (host.parent < 0) | _top_level(timeline))
    spans = {
        thread: _union(host.start[working[mine]], host.end[working[mine]])
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
                merged[number] = _union(np.append(begun, start), np.append(done, end))
                break
        else:
            part_of[thread] = len(merged)
            merged.append((start, end))
    return part_of


def _top_level(timeline: Timeline) -> np.ndarray:
    """Operators and calls that no other operator or call encloses, whatever frames and annotations do."""
    host = timeline.host
    counts = host.kind < HostKind.ANNOTATION
    parent = host.parent
    above = parent >= 0
    chosen: np.ndarray = counts & (~above | ~counts[np.maximum(parent, 0)])
    return chosen


def _union(start: I64, end: I64) -> tuple[I64, I64]:
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.append(True, start[1:] > end[:-1]) if len(start) else np.zeros(0, dtype=np.bool_)
    last = np.append(first[1:], True) if len(start) else first
    return start[first], end[last]


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
