"""What an op waited for that the file does not say: another stream's op that ended as it began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.replay.delays import learn
from unstall.replay.device import Queued
from unstall.timeline import I32, I64, Timeline

LAG_NS = 1_500
"""From the end of an op to the start of one on another stream that waited for it: H200, CUDA 13."""

_LATE_NS = 4_000  # later than all that is known explains
_PROMPT_NS = 50_000  # from the end of what it waited for; devices signal each other in 10 to 20 µs
_TAIL = 1 / 32  # of an op: when its last blocks run, there is room for the next op's
_TRIES = 16


@dataclass(frozen=True, eq=False, slots=True)
class Order:
    """What holds ops back across streams."""

    after: I32  # by op: the earlier op of another stream that it seems to have followed, or -1
    lag: I64  # by op: the usual time from the end of such a one to its start
    event_latency: I64  # by stream: from the end of what it is known to wait for to its next op's start


def find_order(timeline: Timeline, queue: Queued, held_until: I64) -> Order:
    """Infer what the file does not say: which op of another stream one waited for that started late.

    Either its stream was told to wait for an event and the file does not say which, or both needed the same part of
    the device. Only ops that start later than all known causes explain are asked, and an answer has to explain most
    of that. `held_until` is, by op, the end of what its stream is known to wait for.
    """
    streams = len(timeline.streams)
    after = np.full(len(queue), -1, dtype=np.int32)
    lag = np.full(len(queue), LAG_NS, dtype=np.int64)
    event_latency = np.full(streams, LAG_NS, dtype=np.int64)
    if len(np.unique(queue.stream)) < 2:
        return Order(after, lag, event_latency)
    host = timeline.host
    call = np.maximum(queue.launch, 0)
    arrived = np.where(queue.issued, host.start[call], host.end[call]) + queue.latency
    known = np.maximum(arrived, queue.previous_end + queue.gap)
    by_event = (held_until > known) & (queue.start - held_until >= 0) & (queue.start - held_until < _PROMPT_NS)
    event_latency[queue.stream] = learn([queue.stream], by_event, queue.start - held_until, LAG_NS)
    known = np.maximum(known, held_until)
    late = np.flatnonzero((queue.start > known + _LATE_NS) & ~queue.orphan & (queue.launch >= 0) & ~by_event)
    how = _blame(queue, late, (queue.start - known)[late] // 2, after)
    follows = after >= 0
    other = np.maximum(after, 0)
    observed = queue.start - queue.end[other]
    pair = (queue.stream[other].astype(np.int64) * streams + queue.stream) * 4 + how
    name = timeline.device.name[queue.row].astype(np.int64)
    kernels = (name[other] * (int(name.max()) + 1) + name) * 4 + how
    return Order(after, learn([kernels, pair, how], follows, observed, LAG_NS), event_latency)


def _blame(queue: Queued, late: I64, unexplained: I64, after: I32) -> I64:
    """Fill in `after` for the late ops; how each was found, as a number.

    First by an op that had just ended, then by one in whose tail it began, then by any that ended in that time.
    """
    by_end = np.argsort(queue.end, kind="stable")
    end, tail = queue.end[by_end], ((queue.end - queue.start) * _TAIL).astype(np.int64)[by_end]
    begun = queue.start[late]
    prompt, nothing = np.minimum(_PROMPT_NS, unexplained), np.zeros_like(tail)
    how = np.zeros(len(queue), dtype=np.int64)
    passes = ((end, nothing, prompt), (end - tail, tail, prompt), (end, nothing, unexplained // 4))
    for number, (ends, room, window) in enumerate(passes):
        order = np.argsort(ends, kind="stable")
        at = np.searchsorted(ends[order], begun, side="right") - 1
        for back in range(_TRIES):
            chosen = order[np.maximum(at - back, 0)]
            candidate = by_end[chosen]
            fits = (
                (after[late] < 0)
                & (at >= back)
                & (candidate < late)
                & (queue.stream[candidate] != queue.stream[late])
                & (begun - end[chosen] <= window)
                & (end[chosen] - begun <= np.minimum(room[chosen], unexplained))
            )
            after[late[fits]] = candidate[fits]
            how[late[fits]] = number
    return how
