"""Finds the time per call when calls directly follow each other. Makes as few calls as possible.

The clock must have no noise. A virtual GPU's clock has none.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

CallBatch = Callable[[int], float]
"""A function that makes the given number of calls, waits once for all of them, and returns their total time."""

_FEW, _SOME, _MOST = 2, 8, 64
_EDGES = 0.01  # share of a batch that filling and emptying the pipeline may take


def share_of_many(batch: CallBatch) -> float:
    """Returns the time that one more call adds to a batch of calls in which the device is never out
    of work.

    Args:
        batch: Makes a given number of calls and returns their time. It is called once before the
            measurement, so that earlier work has no effect.
    """
    return shares_of_many(batch, 1)[0]


def shares_of_many(batch: CallBatch, count: int) -> list[float]:
    """Measures `count` times how much time one more call adds to a batch of calls in which the
    device is never out of work. Returns one result for each measurement.
    """
    batch(_FEW)
    found = []
    for _ in range(count):
        few = batch(_FEW)
        found.append(max((batch(_FEW + _SOME) - few) / _SOME, 0.0))
    return found


def shares_of_few(batch: CallBatch, count: int) -> list[float]:
    """Measures how much time one more call adds to a batch of a few calls. Makes as few calls as
    possible.

    Measures batches of 2, 3, 4, ... calls. Returns `count` results: how much longer each batch
    takes than the batch that has one call less. A batch of one call is too short for this: each
    later call, as those of a long batch, frees the result of the call before it.
    """
    batch(_FEW)
    took = [batch(calls) for calls in range(_FEW, _FEW + count + 1)]
    return [max(longer - shorter, 0.0) for shorter, longer in pairwise(took)]


def share_of_few(batch: CallBatch) -> float:
    """Returns how much longer a batch of three calls takes than a batch of two calls."""
    return shares_of_few(batch, 1)[0]


def length_of_batch(batch: CallBatch) -> int:
    """Returns a number of calls. In a batch of so many calls, the time at its start in which the
    device has no work yet, and the time at its end in which the host only waits, are a negligible
    share of the batch's time.
    """
    one, share = batch(1), share_of_many(batch)
    return round(min(max((one - share) / (_EDGES * share), _SOME), _MOST)) if share else _SOME
