"""What an op waited for that the file does not say: another stream's op that ended as it began."""

from __future__ import annotations

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


def infer_order(timeline: Timeline, queue: Queued, held_until: I64) -> tuple[I32, I64]:
    """By op: the earlier op of another stream that it seems to have followed, or -1; and the usual lag behind it.

    Either its stream was told to wait for an event and the file does not say which, or both needed the same part of
    the device. Only ops that start later than all known causes explain are asked, and an answer has to explain most
    of that.
    """
    after = np.full(len(queue), -1, dtype=np.int32)
    lag = np.full(len(queue), LAG_NS, dtype=np.int64)
    if len(np.unique(queue.stream)) < 2:
        return after, lag
    host = timeline.host
    call = np.maximum(queue.launch, 0)
    arrived = np.where(queue.issued, host.start[call], host.end[call]) + queue.latency
    known = np.maximum(np.maximum(arrived, queue.previous_end + queue.gap), held_until)
    late = np.flatnonzero((queue.start > known + _LATE_NS) & ~queue.orphan & (queue.launch >= 0))
    by_end = np.argsort(queue.end, kind="stable")
    end, tail = queue.end[by_end], ((queue.end - queue.start) * _TAIL).astype(np.int64)[by_end]
    begun = queue.start[late]
    unexplained = (begun - known[late]) // 2
    for ends, room in ((end, np.zeros_like(tail)), (end - tail, tail)):
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
                & (begun - end[chosen] <= np.minimum(_PROMPT_NS, unexplained))
                & (end[chosen] - begun <= np.minimum(room[chosen], unexplained))
            )
            after[late[fits]] = candidate[fits]
    follows = after >= 0
    other = np.maximum(after, 0)
    observed = queue.start - queue.end[other]
    streams = len(timeline.streams)
    pair = (queue.stream[other] * streams + queue.stream) * 2 + (observed < 0)
    return after, learn([pair, observed < 0], follows, observed, LAG_NS)
