"""Infers dependencies between ops that a trace does not record.

For example, op B is assumed to depend on op A of another stream if A ended just when B began, and
nothing else explains why B began so late.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.replay.branches import first_of, joins
from unstall.replay.delays import learn
from unstall.replay.device import Queued
from unstall.timeline.columns import I32, I64, Timeline
from unstall.timeline.grouping import unique

LAG_NS = 1_500
"""Time in ns from the end of an op to the start of an op on another stream that waited for it (H200, CUDA 13)."""

_LATE_NS = 4_000  # later than all known causes explain
_PROMPT_NS = 50_000  # from the end of the other op; devices signal each other in 10 to 20 µs
_TAIL = 1 / 32  # of an op: while its last blocks run, there is room for blocks of the next op
_TRIES = 16
_IN_GRAPH = 3  # number for "found in a graph", after the numbers of the passes of `_blame`


class Order(msgspec.Struct, frozen=True, eq=False):
    """For each op, the op of another stream for which it waited, as inferred. Times are in ns."""

    after: I32  # by op: the earlier op of another stream that it waited for, or -1
    lag: I64  # by op: the usual time from the end of that op to its start
    event_latency: I64  # by stream: from the end of a recorded event to the next op's start


def find_order(timeline: Timeline, queue: Queued, held_until: I64) -> Order:
    """Infers, for each op that started late, the op of another stream for which the late op waited.

    There are two possible reasons for such a wait. The stream of the late op waited for an event
    that is not in the trace, or both ops needed the same part of the device. Only ops whose late
    start has no known cause are considered. The wait for the inferred op must explain most of the
    delay.

    Args:
        timeline: The run.
        queue: The device ops, in launch order.
        held_until: For each op, the time in ns until which its stream waits for known events.
    """
    streams = len(timeline.streams)
    after = np.full(len(queue), -1, dtype=np.int32)
    lag = np.full(len(queue), LAG_NS, dtype=np.int64)
    event_latency = np.full(streams, LAG_NS, dtype=np.int64)
    if len(unique(queue.stream)) < 2:
        return Order(after, lag, event_latency)
    host = timeline.host
    call = np.maximum(queue.launch, 0)
    arrived = np.where(queue.issued, host.start[call], host.end[call]) + queue.latency
    known = np.maximum(arrived, queue.previous_end + queue.gap)
    by_event = (held_until > known) & (queue.start - held_until >= 0) & (queue.start - held_until < _PROMPT_NS)
    event_latency[queue.stream] = learn([queue.stream], by_event, queue.start - held_until, LAG_NS)
    known = np.maximum(known, held_until)
    within = _in_branches(queue, known, after)
    late = (queue.start > known + _LATE_NS) & ~queue.orphan & (queue.launch >= 0) & ~by_event & (after < 0)
    late = np.flatnonzero(late)
    how = _blame(queue, late, (queue.start - known)[late] // 2, after)
    how[within] = _IN_GRAPH
    op, branch = joins(queue.launch, queue.previous, after, queue.start, queue.end)
    after[op], how[op] = branch, _IN_GRAPH
    joined = np.zeros(len(queue), dtype=np.bool_)
    joined[op] = True
    follows = after >= 0
    other = np.maximum(after, 0)
    observed = queue.start - queue.end[other]
    pair = (queue.stream[other].astype(np.int64) * streams + queue.stream) * 4 + how
    name = timeline.device.name[queue.row].astype(np.int64)
    kernels = (name[other] * (int(name.max()) + 1) + name) * 4 + how
    lag = learn([kernels, pair, how], follows & ~joined, observed, LAG_NS)
    lag[joined] = np.minimum(lag, observed)[joined]
    return Order(after, lag, event_latency)


def _in_branches(queue: Queued, known: I64, after: I32) -> I64:
    """Sets `after` for each op of a CUDA graph that waited for an op on another stream of its
    graph. Returns the ops that waited.
    """
    late = queue.start - np.maximum(known, queue.start[first_of(queue.follows)])
    other = np.maximum(queue.beside, 0)
    chosen = (queue.beside >= 0) & queue.follows & ~queue.orphan & (late > queue.slack)
    held = np.flatnonzero(chosen & (queue.start - queue.end[other] <= np.maximum(_LATE_NS, late // 2)))
    after[held] = queue.beside[held]
    return held


def _blame(queue: Queued, late: I64, unexplained: I64, after: I32) -> I64:
    """Finds, for each late op, the op of another stream for which it waited. Writes this op to `after`.

    There are three passes. Pass 0 accepts an op that ended just before the late op began. Pass 1 accepts an op that was
    near its end when the late op began. Pass 2 accepts an op that ended in the last part of the unexplained delay.

    Args:
        queue: The device ops, in launch order.
        late: The ops that started later than all known causes explain.
        unexplained: For each late op, half of the delay that no known cause explains, in ns.
        after: For each op, the earlier op for which it waited, or -1. This function changes it.

    Returns:
        For each op, the number of the pass that set `after`.
    """
    how = np.zeros(len(queue), dtype=np.int64)
    if not len(late):
        return how
    by_end = np.argsort(queue.end, kind="stable")
    end, tail = queue.end[by_end], ((queue.end - queue.start) * _TAIL).astype(np.int64)[by_end]
    begun = queue.start[late]
    prompt, nothing = np.minimum(_PROMPT_NS, unexplained), np.zeros_like(tail)
    passes = ((end, nothing, prompt), (end - tail, tail, prompt), (end, nothing, unexplained // 4))
    for number, (ends, room, window) in enumerate(passes):
        order = np.argsort(ends, kind="stable")
        ends = ends[order]
        open_ = np.flatnonzero(after[late] < 0)
        longest = int(room.max(initial=0))  # so much later than `ends` an op may end
        last = np.searchsorted(ends, begun[open_], side="right")
        first = np.searchsorted(ends, begun[open_] - window[open_] - longest)
        tries = np.minimum(last - np.minimum(first, last), _TRIES)
        # All tries of all ops at once: those of one op stand together, the candidate that ended last is the first.
        begins = np.cumsum(tries) - tries
        chosen = order[np.repeat(last - 1 + begins, tries) - np.arange(int(tries.sum()))]
        tried = np.repeat(open_, tries)
        candidate, row = by_end[chosen], late[tried]
        too_early = begun[tried] - end[chosen]
        fits = np.flatnonzero(
            (candidate < row)
            & (queue.stream[candidate] != queue.stream[row])
            & (too_early <= window[tried])
            & (-too_early <= np.minimum(room[chosen], unexplained[tried]))
        )[::-1]  # of several that fit, the first stays
        after[row[fits]] = candidate[fits]
        how[row[fits]] = number
    return how
