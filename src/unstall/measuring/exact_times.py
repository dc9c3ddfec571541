"""Calls back to back by a clock that has no noise, a virtual GPU's: as few of them as tell what many would."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

Batch = Callable[[int], float]
"""So many calls, waited for once: what they take."""

_FEW, _SOME, _MOST = 2, 8, 64
_EDGES = 0.01  # of a batch: what fills and empties the pipeline


def share_of_many(batch: Batch) -> float:
    """What one call more takes, once the pipeline is full. What else ran before has the first batch to be forgotten."""
    return shares_of_many(batch, 1)[0]


def shares_of_many(batch: Batch, count: int) -> list[float]:
    """The same, so many times."""
    batch(_FEW)
    found = []
    for _ in range(count):
        few = batch(_FEW)
        found.append(max((batch(_FEW + _SOME) - few) / _SOME, 0.0))
    return found


def shares_of_few(batch: Batch, count: int) -> list[float]:
    """The same, of as few calls as tell of a second one."""
    batch(_FEW)
    took = [batch(calls) for calls in range(1, count + 2)]
    return [max(longer - shorter, 0.0) for shorter, longer in pairwise(took)]


def share_of_few(batch: Batch) -> float:
    """What one call more takes, of as few calls as tell it."""
    return shares_of_few(batch, 1)[0]


def length_of_batch(batch: Batch) -> int:
    """So many calls that the pipeline's edges count for nothing, of whole batches."""
    one, share = batch(1), share_of_many(batch)
    return round(min(max((one - share) / (_EDGES * share), _SOME), _MOST)) if share else _SOME
