"""How long to go on taking samples, and why one stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unstall.bench.statistics import Spread, entropy_flat

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


def sample_until(take: Take, *, rel_ci: float, seconds: float, first: int = LEAST) -> Sampled:
    """Take samples, in batches that grow, until the median's 95 % interval is within ± `rel_ci`, the noise's entropy
    is flat, or `seconds` of the machine's own clock are over. There is always one batch."""
    deadline = time.monotonic() + seconds
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
            return Sampled(spread, f"time is up: the median is known to {_percent(spread)}", False)


def _percent(spread: Spread) -> str:
    return f"± {100 * spread.relative_ci:.2g} %" if np.isfinite(spread.relative_ci) else "nothing"
