"""Takes samples until there are enough, and says why sampling stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unstall.figures import counted
from unstall.measuring.progress import tell
from unstall.measuring.statistics import Spread, entropy_flat
from unstall.measuring.wording import percent

LEAST, FEWEST = 10, 2  # samples unless time is up; samples of a model if there is little time
_MOST = 20_000
_GROWTH = 2

Take = Callable[[int], ArrayLike]
"""A function that takes up to the given number of samples and returns them in ns. It returns fewer
if its time is up.
"""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of a time. `stopped` says why sampling stopped. `converged` says whether there are enough samples."""

    spread: Spread
    stopped: str
    converged: bool


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop sampling: when the median is known to ± `rel_ci`, or after `seconds` by the
    machine's clock.

    Attributes:
        rel_ci: The wanted uncertainty of the median, as a fraction of the median.
        seconds: The time limit.
        each_s: The time of one call in s, by the machine's clock; 0 if it is not known.
        alike: If times come from the model of a virtual GPU: the number of equal samples that are
            enough. 0 if times have noise.
        brief: Whether there is time for only a few calls. If so, no call is made twice for the same
            purpose.
    """

    rel_ci: float
    seconds: float
    each_s: float = 0.0  # time of a call, by that clock; 0: not known
    alike: int = 0  # the number of equal samples that suffice, if times come from a model; 0: times have noise
    brief: bool = False  # whether there is time for few calls, so that none is made for the same purpose twice

    def affords(self, calls: int, least: int) -> int:
        """Returns the number of calls that fit in the time limit: at least `least`, at most
        `calls`.

        On a virtual GPU, the number does not depend on the machine's speed: it is `least` if
        `brief` is set, and `calls` if not.
        """
        if self.alike:
            return least if self.brief else calls
        return calls if self.each_s * calls <= self.seconds else max(least, int(self.seconds / self.each_s))

    def least(self, there: int) -> int:
        """Returns how many more samples must be taken even if time is up. `there` is the number of
        samples taken so far.
        """
        return max(0, (1 if self.brief and not self.alike else 2) - there)


def sample_until(take: Take, until: Until, *, first: int = LEAST, there: ArrayLike = ()) -> Sampled:
    """Takes samples in growing batches. Stops when there are enough samples, when more samples
    would give no new information, or when time is up.

    Args:
        take: Takes up to a given number of samples.
        until: When to stop.
        first: The size of the first batch.
        there: Earlier samples. The result includes them. If there are none, at least one batch is
            taken, even if time is up.
    """
    deadline = time.monotonic() + until.seconds
    samples = np.asarray(there, np.float64)
    count = first if len(samples) else max(1, first)
    if len(samples) and (done := _enough(samples, until)):
        return done
    while True:
        if count < 1:
            return _time_is_up(Spread.of(samples), until)
        began = time.monotonic()
        tell(f"{counted(len(samples), 'sample')} so far" if len(samples) else "the first samples")
        new = np.asarray(take(count), np.float64)
        samples = np.concatenate((samples, new))
        now = time.monotonic()
        if done := _enough(samples, until):
            return done
        left, each = deadline - now, (now - began) / max(1, len(new))
        count = min(_GROWTH * count, int(left / each) if each > 0 else count, _MOST - len(samples)) if len(new) else 0


def _enough(samples: NDArray[np.float64], until: Until) -> Sampled | None:
    spread = Spread.of(samples)
    if until.alike and spread.n >= until.alike and not np.ptp(samples):
        return Sampled(spread, "all calls take the same, as the model has it", True)
    if spread.n >= LEAST and spread.relative_ci <= until.rel_ci:
        return Sampled(spread, _known(until), True)
    if entropy_flat(samples):
        return Sampled(spread, f"more samples would tell no more: the median is known to {_percent(spread)}", True)
    return None


def _time_is_up(spread: Spread, until: Until) -> Sampled:
    if spread.n == 1:
        return Sampled(spread, "time is up after one sample, and how much others differ is not known", False)
    if not spread.is_bounded:
        apart = percent((spread.high - spread.low) / spread.median) if spread.median else "0 %"
        few = f"time is up after {spread.n} samples, which are {apart} apart: how much others differ is not known"
        return Sampled(spread, few, False)
    if spread.relative_ci <= until.rel_ci:
        return Sampled(spread, _known(until), True)
    return Sampled(spread, f"time is up: the median is known to {_percent(spread)}", False)


def _known(until: Until) -> str:
    return f"the median is known to {100 * until.rel_ci:.3g} %"


def _percent(spread: Spread) -> str:
    if not np.isfinite(spread.relative_ci):
        return "nothing"
    return f"± {percent(spread.relative_ci)}"
