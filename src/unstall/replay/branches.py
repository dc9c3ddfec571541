"""Infers which ops of a CUDA graph waited for each other, if the graph's ops run on several streams
(its branches).

A trace has the streams and times of a graph's ops, but not the graph's edges. Usually an op starts
a typical gap after the previous op on its stream. If an op started later, it is assumed to have
waited for an op of another branch. Of all ops of other branches, this is the op that ended last
before the waiting op started.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct, groups

TICK_NS = 32
"""Resolution of device times in ns, measured with an H200 and CUPTI 13."""

_MOST = 0.9  # of gaps; larger ones had another cause


def launched_on(launch: I64, thread: I64, stream: I32) -> I32:
    """Returns, for each op, the stream on which its call launched it, as a row of
    `timeline.streams`.

    A CUDA graph may run its ops on more streams than the one on which it was launched, and a trace
    does not say which one that was. So it is inferred. It is one of the streams on which the graph
    ran: the one that most ops of other calls use. If no other call uses one of these streams, it is
    the stream of the thread's previous call. If there is no previous call, it is the stream of the
    thread's next call.

    Args:
        launch: The call that launched each op, as a row of `timeline.host`; -1 if it is not known.
            Ops are in launch order.
        thread: The thread of each op's call.
        stream: The stream on which each op ran, as a row of `timeline.streams`.
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
    """Yields `(stream, ops)` for each stream. `ops` are the indices of ops in launch order: those
    that ran on this stream, and all ops of the CUDA graphs that were launched on this stream.

    Args:
        stream: The stream on which each op ran.
        on: The stream on which each op was launched.
    """
    away = np.flatnonzero(on != stream)
    rows = np.concatenate((np.arange(len(stream)), away))
    for number, mine in groups(np.concatenate((stream, on[away]))):
        yield number, np.sort(rows[mine])


def roots(launch: I64, previous: I64, beside: I64, follows: Bool) -> Bool:
    """Returns a mask of the ops that wait for no other op of their CUDA graph. With such an op, a
    branch begins: the part of the graph's ops that runs on one stream.

    Args:
        launch: The call that launched each op; -1 if it is not known. Ops are in launch order.
        previous: The op before each op on its stream, or -1.
        beside: For each op, the op on another stream of the graph that ended last before it began,
            or -1.
        follows: Whether an op is not the first op of its launch.
    """
    chosen: Bool = follows & (beside < 0) & ((previous < 0) | (launch[previous] != launch))
    return chosen


def first_of(follows: Bool) -> I64:
    """Returns, for each op, the index of the first op of its launch. `follows` says for each op, in
    launch order, whether it is another op of the same launch as the op before it.
    """
    return np.maximum.accumulate(np.where(follows, 0, np.arange(len(follows))))


def ended_last(launch: I64, stream: I32, start: I64, end: I64) -> I64:
    """Returns, for each op A, the op B of the same launch that ran on another stream and ended last
    before A began.

    The result is -1 if there is no such op B, or if the launch of A is not known.

    Args:
        launch: The call that launched each op; -1 if it is not known.
        stream: The stream on which each op ran.
        start: The start of each op, in ns.
        end: The end of each op, in ns.
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
    for _ in range(2):  # if the last one is on the op's own stream, the second round skips to another stream's
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
    """Returns a mask of the ops whose launch put ops on several streams."""
    _, which = distinct(launch)
    one = np.zeros(int(which.max(initial=-1)) + 1, dtype=stream.dtype)
    one[which] = stream
    several = np.zeros(len(one), dtype=np.bool_)
    several[which[stream != one[which]]] = True
    chosen: Bool = (launch >= 0) & several[which]
    return chosen


def spread(off: I64) -> int:
    """Returns by how many ns the gap between two ops may differ from its usual length and still
    count as usual.

    `off` has the measured differences between gaps and their usual length, in ns.
    """
    return max(int(np.quantile(np.abs(off), _MOST)) if len(off) else 0, TICK_NS)


def joins(launch: I64, previous: I64, after: I32, start: I64, end: I64) -> tuple[I64, I64]:
    """Returns the joins of branches of CUDA graphs that caused no visible delay. A branch is the
    part of a graph's ops that runs on one stream.

    At a join, an op waits for the end of another branch. A branch that ended early delays no op, so
    its join is not visible in the times. The join is inferred in one case: the op after the branch,
    on the same stream, waited for an op X of another stream, and X began after the branch had
    ended. X is then assumed to have waited for the end of the branch. If several branches join at
    X, only the branch that ended last is returned.

    Args:
        launch: The call that launched each op; -1 if it is not known.
        previous: The op before each op on its stream, or -1.
        after: For each op, the op of another stream for which it waited, or -1.
        start: The start of each op, in ns.
        end: The end of each op, in ns.

    Returns:
        `(ops, ends)`, two columns of indices: an op X, and the last op of the branch for which X
        waited.
    """
    opens = np.flatnonzero((after >= 0) & (previous >= 0) & (launch >= 0))
    fork, branch = after[opens].astype(np.int64), previous[opens]
    same = (launch[fork] == launch[opens]) & (launch[branch] == launch[opens])
    fits = same & (after[fork] < 0) & (end[branch] <= start[fork]) & (branch < fork)
    fork, branch = fork[fits], branch[fits]
    order = np.lexsort((end[branch], fork))
    last = np.append(fork[order][1:] != fork[order][:-1], True)[: len(order)]
    return fork[order][last], branch[order][last]
