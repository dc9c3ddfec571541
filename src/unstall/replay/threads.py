"""Finds the host threads that affect the device, and merges threads that take turns.

Autograd runs the backward pass on a separate thread while the calling thread waits. A trace does
not have this wait. But if two threads never work at the same time, a replay can treat them as one
thread.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, I64, Bool, HostKind, Timeline
from unstall.timeline.grouping import groups, union

_IDLE_NS = 100_000
_ALONE_SHARE = 0.02  # share of a thread's working time that may overlap another's because of imprecise times


def merge_threads(timeline: Timeline, rows: I64, main: int) -> I32:
    """Returns, for each thread of the timeline, its number in the program; -1 for a thread that has
    none of the events `rows`.

    Thread 0 of the program runs the steps. Threads that take turns get the same number.

    Args:
        timeline: The run.
        rows: The events that become instructions, as rows of `timeline.host`.
        main: The thread that runs the steps, as a row of `timeline.threads`.
    """
    host = timeline.host
    working = np.flatnonzero(_innermost(timeline))
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
    """Finds threads that continued after a pause because thread 0, which runs the steps, woke them.

    If thread 0 finished instructions during the pause, the paused thread is assumed to have waited
    for the last of these instructions.

    Args:
        time: When each instruction began, as recorded, in ns.
        end: When each instruction ended, as recorded, in ns.
        thread: The thread of each instruction.
        threads: Number of threads.

    Returns:
        `(woken, waking)`, two columns of indices of instructions. `woken` has the first instruction
        of a thread after its pause. `waking` has the instruction of thread 0 that woke the thread.
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


def _innermost(timeline: Timeline) -> Bool:
    """Returns a mask of the operators and calls that contain no operator or call. An operator that contains others may
    merely wait in between: the forward of a torch.autograd.Function, for example, waits for autograd's thread while it
    calls torch.autograd.grad.
    """
    host = timeline.host
    chosen: Bool = host.kind < HostKind.ANNOTATION
    parent = host.parent[chosen]
    around = nearest(host.parent, chosen)[parent[parent >= 0]]
    chosen[around[around >= 0]] = False
    return chosen


def _common(start: I64, end: I64, begun: I64, done: I64) -> int:
    """Returns for how long, in ns, two sets of intervals overlap: those from `start` to `end`, and
    those from `begun` to `done`. The intervals of one set do not overlap each other.
    """

    def covered(times: I64) -> I64:
        total = np.append(0, np.cumsum(done - begun))
        at = np.searchsorted(begun, times, side="right")
        inside = (
            np.minimum(times, done[np.maximum(at - 1, 0)]) - begun[np.maximum(at - 1, 0)] if len(begun) else times * 0
        )
        return total[np.maximum(at - 1, 0)] + np.where(at > 0, np.maximum(inside, 0), 0)

    return int((covered(end) - covered(start)).sum()) if len(begun) else 0
