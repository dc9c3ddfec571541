"""The branches of a CUDA graph: what the ops of one launch on several streams waited for of each other.

A file says on which streams a graph's ops ran, and when, but none of the graph's edges. An op that began later than
what is before it on its own stream explains had waited for one of another branch; of those, for the one that had
ended last.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct, groups

TICK_NS = 32
"""What times of the device are good to: H200, CUPTI 13."""

_MOST = 0.9  # of gaps; later ones had another cause


def launched_on(launch: I64, thread: I64, stream: I32) -> I32:
    """By op, in the order of launches: the stream that its call was told to use.

    The branches of a graph may run on streams of its own, and none of them need be that one. It is the one of them
    that other calls use most; else that of the call before it, or after it, on its thread.
    """
    several = _on_several_streams(launch, stream)
    result = stream.copy()
    if not several.any():
        return result
    rows = np.flatnonzero(several)
    single = ~several & (launch >= 0)
    used = np.bincount(stream[single], minlength=int(stream.max()) + 1)
    order = rows[np.lexsort((rows, -used[stream[rows]], launch[rows]))]
    opens = np.append(True, launch[order][1:] != launch[order][:-1])
    chosen = order[opens]
    told = stream[chosen]
    for number, mine in groups(thread[chosen]):
        mine = mine[used[told[mine]] == 0]
        others = np.flatnonzero(single & (thread == number))
        near = others[np.maximum(np.searchsorted(others, chosen[mine]) - 1, 0)] if len(others) else chosen[mine[:1]]
        told[mine] = stream[near]
    result[order] = told[np.cumsum(opens) - 1]
    return result


def by_stream(stream: I32, on: I32) -> Iterator[tuple[int, I64]]:
    """(stream, the ops that it was given, in order): those that ran on it, and those of graphs launched on it."""
    away = np.flatnonzero(on != stream)
    rows = np.concatenate((np.arange(len(stream)), away))
    for number, mine in groups(np.concatenate((stream, on[away]))):
        yield number, np.sort(rows[mine])


def roots(launch: I64, previous: I64, beside: I64, follows: Bool) -> Bool:
    """Which ops begin a branch with the graph itself, beside its first op."""
    chosen: Bool = follows & (beside < 0) & ((previous < 0) | (launch[previous] != launch))
    return chosen


def first_of(follows: Bool) -> I64:
    """By op: the first op of its launch."""
    return np.maximum.accumulate(np.where(follows, 0, np.arange(len(follows))))


def ended_last(launch: I64, stream: I32, start: I64, end: I64) -> I64:
    """By op: of those of its launch on other streams, the one that ended last before it began; -1 for none.

    An op without a launch (-1) has none.
    """
    found = np.full(len(launch), -1, dtype=np.int64)
    rows = np.flatnonzero(_on_several_streams(launch, stream))
    if not len(rows):
        return found
    times, at = distinct(np.concatenate((end[rows], start[rows])))
    _, which = distinct(launch[rows])
    ended, begun = (which * len(times) + part for part in np.split(at, 2))
    order = np.argsort(ended, kind="stable")
    lane, owner = stream[rows][order], which[order]
    first = np.append(True, (lane[1:] != lane[:-1]) | (owner[1:] != owner[:-1]))
    before_its_run = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0)) - 1
    last = np.searchsorted(ended[order], begun, side="right") - 1
    for _ in range(2):  # the last of all may be its own stream's; before that one's run stands another stream's
        other = np.maximum(last, 0)
        own = (last >= 0) & (owner[other] == which) & (lane[other] == stream[rows])
        last = np.where(own, before_its_run[other], last)
    other = np.maximum(last, 0)
    known = (last >= 0) & (owner[other] == which) & (lane[other] != stream[rows])
    candidate = rows[order[other]]
    known &= candidate < rows
    found[rows[known]] = candidate[known]
    return found


def _on_several_streams(launch: I64, stream: I32) -> Bool:
    """By op: whether its launch put ops on more streams than one."""
    _, which = distinct(launch)
    low = np.full(int(which.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    high = np.full(len(low), -1)
    np.minimum.at(low, which, stream)
    np.maximum.at(high, which, stream)
    chosen: Bool = (launch >= 0) & (low != high)[which]
    return chosen


def spread(off: I64) -> int:
    """How much later than usual an op may begin for no other cause, given how far gaps are from the usual one; ns."""
    return max(int(np.quantile(np.abs(off), _MOST)) if len(off) else 0, TICK_NS)


def joins(launch: I64, previous: I64, after: I32, start: I64, end: I64) -> tuple[I64, I64]:
    """(op, earlier op of another stream that it waits for too), where that one had ended long enough before.

    A branch that ended early shows no wait. But where its stream is used again, after an op of another stream, that
    op came after the join. Of several branches joined there, the one that ended last.
    """
    opens = np.flatnonzero((after >= 0) & (previous >= 0) & (launch >= 0))
    fork, branch = after[opens].astype(np.int64), previous[opens]
    same = (launch[fork] == launch[opens]) & (launch[branch] == launch[opens])
    fits = same & (after[fork] < 0) & (end[branch] <= start[fork]) & (branch < fork)
    fork, branch = fork[fits], branch[fits]
    order = np.lexsort((end[branch], fork))
    last = np.append(fork[order][1:] != fork[order][:-1], True)[: len(order)]
    return fork[order][last], branch[order][last]
