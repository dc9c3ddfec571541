"""How long to go on taking samples, and why one stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unstall.bench.statistics import Spread, entropy_flat
from unstall.bench.wording import percent

LEAST = 10  # samples, unless time is up
_MOST = 20_000
_GROWTH = 2

Take = Callable[[int], ArrayLike]
"""So many more samples, ns; it may give fewer, where the time does not reach for them."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples, and why there are no more."""

    spread: Spread
    stopped: str
    converged: bool


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop: the median is known to ± `rel_ci`, or `seconds` of the machine's own clock are over."""

    rel_ci: float
    seconds: float
    each_s: float = 0.0  # what a call takes, by that clock; 0 where it is not known
    exact: bool = False  # whether calls that are alike take the same to the nanosecond

    def affords(self, calls: int, least: int) -> int:
        """So many calls, or as many as there is time for, but no fewer than the least."""
        return calls if self.each_s * calls <= self.seconds else max(least, int(self.seconds / self.each_s))


def sample_until(take: Take, until: Until, *, first: int = LEAST) -> Sampled:
    """Take samples, in batches that grow, until they are enough or the noise's entropy is flat. There is always one
    batch, of `first`."""
    rel_ci, deadline = until.rel_ci, time.monotonic() + until.seconds
    samples: NDArray[np.float64] = np.zeros(0)
    count = max(1, first)
    while True:
        began = time.monotonic()
        new = np.asarray(take(count), np.float64)
        samples = np.concatenate((samples, new))
        now = time.monotonic()
        spread = Spread.of(samples)
        if spread.n >= LEAST and spread.relative_ci <= rel_ci:
            return Sampled(spread, f"the median is known to {100 * rel_ci:.3g} %", True)
        if entropy_flat(samples):
            return Sampled(spread, f"more samples would tell no more: the median is known to {_percent(spread)}", True)
        left, each = deadline - now, (now - began) / max(1, len(new))
        count = min(_GROWTH * count, int(left / each) if each > 0 else count, _MOST - len(samples))
        if count < 1 or not len(new):
            if until.exact and spread.n > 1 and not np.ptp(samples):
                return Sampled(spread, "all calls take the same, as the model has it", True)
            return Sampled(spread, f"time is up: the median is known to {_percent(spread)}", False)


def _percent(spread: Spread) -> str:
    if not np.isfinite(spread.relative_ci):
        return "nothing"
    return f"± {percent(spread.relative_ci)}"
