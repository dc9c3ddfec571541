"""What an op waited for that the file does not say: another stream's op that ended as it began."""

from __future__ import annotations

import numpy as np

from unstall.replay.device import Queued
from unstall.timeline import I32, I64, Timeline

_LATE_NS = 4_000  # later than all that is known explains
_PROMPT_NS = 8_000  # from the end of what it waited for
_SKEW_NS = 1_000  # older recorders write whole microseconds
_TRIES = 16


def infer_order(timeline: Timeline, queue: Queued, held_until: I64) -> I32:
    """By op: the earlier op of another stream that it seems to have followed, or -1.

    Either its stream was told to wait for an event and the file does not say which, or both needed the same part of
    the device. Only ops that start later than all known causes explain are asked.
    """
    after = np.full(len(queue), -1, dtype=np.int32)
    if len(np.unique(queue.stream)) < 2:
        return after
    host = timeline.host
    arrived = np.where(queue.launch >= 0, host.end[np.maximum(queue.launch, 0)] + queue.latency, queue.start)
    known = np.maximum(np.maximum(arrived, queue.previous_end + queue.gap), held_until)
    late = np.flatnonzero((queue.start > known + _LATE_NS) & ~queue.orphan)
    by_end = np.argsort(queue.end, kind="stable")
    at = np.searchsorted(queue.end[by_end], queue.start[late] + _SKEW_NS, side="right") - 1
    for back in range(_TRIES):
        seeking = after[late] < 0
        candidate = by_end[np.maximum(at - back, 0)]
        fits = (
            seeking
            & (at >= back)
            & (candidate < late)
            & (queue.stream[candidate] != queue.stream[late])
            & (queue.end[candidate] >= queue.start[late] - _PROMPT_NS)
        )
        after[late[fits]] = candidate[fits]
    return after
