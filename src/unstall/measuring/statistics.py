"""Statistics of the samples of a time: their spread, the interval of a ratio of two times, and
whether more samples would add information.

Times are float64 nanoseconds. Nothing here assumes a distribution: on a shared machine, times are
skewed and drift, and their distribution may have several modes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
_LEAST = 6  # the fewest samples of which two bound the median with CONFIDENCE: 1 - 2 / 2**6 = 0.97
_EXACT = 1_000  # up to here binomial sums are exact, beyond the normal approximation is
_Z = 1.959963984540054  # the normal quantile of CONFIDENCE, two-sided
_STUDENT_OF_FEW = {2: 4.303, 4: 2.776, 6: 2.447}  # its two-sided quantile of CONFIDENCE, by degrees of freedom
_RESAMPLES = 1_000
_BIN = 0.005  # of the median: noise finer than this is no news
_FLAT_BITS = 0.05  # by how much the entropy may still grow over the second half of the samples
_FLAT_LEAST = 64


@dataclass(frozen=True, eq=False)
class Spread:
    """Samples of one time, in ns, with their median and their quartiles.

    `low` and `high` bound the median with 95 % confidence. With fewer than 6 samples, `low` and `high` are the smallest
    and the largest sample.
    """

    samples: NDArray[np.float64]
    n: int
    median: float
    low: float
    high: float
    q1: float
    q3: float
    mean: float

    @classmethod
    def of(cls, samples_ns: ArrayLike) -> Spread:
        """Returns the spread of samples in ns.

        Raises:
            ValueError: There are no samples, or a sample is not finite.
        """
        samples = np.array(samples_ns, dtype=np.float64).ravel()
        if not samples.size or not np.isfinite(samples).all():
            raise ValueError("a spread is of at least one sample, and all must be finite")
        samples.flags.writeable = False
        ordered = np.sort(samples)
        rank = _rank(samples.size)
        q1, median, q3 = np.quantile(ordered, (0.25, 0.5, 0.75))
        return cls(
            samples=samples,
            n=samples.size,
            median=float(median),
            low=float(ordered[rank]),
            high=float(ordered[-1 - rank]),
            q1=float(q1),
            q3=float(q3),
            mean=float(samples.mean()),
        )

    @property
    def relative_ci(self) -> float:
        """Half the width of the median's 95 % interval, divided by the median: 0.01 if the median is known to ± 1 %."""
        half = (self.high - self.low) / 2
        return half / self.median if self.median > 0 else (math.inf if half else 0.0)

    @property
    def is_bounded(self) -> bool:
        """Whether there are enough samples (6 or more) for a confidence interval of the median."""
        return self.n >= _LEAST

    @property
    def iqr(self) -> float:
        """The interquartile range of the samples in ns: `q3 - q1`."""
        return self.q3 - self.q1


@dataclass(frozen=True)
class Interval:
    """The ratio of two times, as estimated from samples. `median` is the estimate; `low` and `high`
    bound the ratio with 95 % confidence.
    """

    median: float
    low: float
    high: float


def ratio_interval(a: ArrayLike, b: ArrayLike, *, pairs: bool, seed: int = 0) -> Interval:
    """Returns the ratio of time `a` to time `b`, with the ratio's 95 % interval.

    Without `pairs`, all samples are independent. The ratio is the median of `a`, divided by the
    median of `b`.

    With `pairs`, `a` and `b` have shape (rounds,) or (rounds, samples). The samples in row i of `a`
    and of `b` were taken alternately in round i. Each pair of samples from one round has a ratio.
    The result is the median of these ratios. So if the machine gets steadily slower, or other work
    slows a whole round, the result does not change. For the interval, rounds are resampled in
    blocks, because neighbouring rounds are similar. With fewer than 6 rounds, the interval goes
    from the smallest ratio of a pair to the largest.

    Raises:
        ValueError: There are no samples, a time is not above zero, or `a` and `b` have different
            numbers of rounds.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not a.size or not b.size:
        raise ValueError("a ratio needs samples of both")
    if min(a.min(), b.min()) <= 0:
        raise ValueError("a ratio needs times above zero")
    rng = np.random.default_rng(seed)
    if not pairs:
        middle = float(np.median(a) / np.median(b))
        ratios = _medians(np.sort(a.ravel()), rng) / _medians(np.sort(b.ravel()), rng)
        independent = min(a.size, b.size)
    else:
        if a.shape[0] != b.shape[0]:
            raise ValueError(f"{a.shape[0]} rounds of one and {b.shape[0]} of the other are no pairs")
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        within = (a[:, :, None] / b[:, None, :]).reshape(len(a), -1)
        middle = _geometric_median(within)
        if len(a) < _LEAST:
            return Interval(middle, min(float(within.min()), middle), max(float(within.max()), middle))
        length = max(1, round(len(a) ** (1 / 3)))
        ratios = _resampled_medians(within, length, rng)
        independent = len(a) // length
    low, high = np.quantile(ratios, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    wider = _student(independent - 1) / _Z
    low, high = min(low / middle, 1.0) ** wider, max(high / middle, 1.0) ** wider
    return Interval(middle, float(middle * low), float(middle * high))


def half_of_few(a: ArrayLike, b: ArrayLike, *, least: float) -> float:
    """Returns a factor f for the ratio of two times: the 95 % interval of the ratio goes from ratio
    / f to ratio * f.

    Each time has 2 to 4 samples. The interval is Student's. It uses the standard deviation of the
    samples' logarithms, or `least` if the standard deviation is smaller.
    """
    logs = np.log([np.ravel(a), np.ravel(b)])
    n = logs.shape[1]
    noise = max(least, float(np.sqrt(logs.var(axis=1, ddof=1).mean())))
    return math.exp(_STUDENT_OF_FEW[2 * (n - 1)] * noise * math.sqrt(2 / n))


def entropy_flat(samples: ArrayLike) -> bool:
    """Returns whether there are so many samples that more would not show the noise better.

    This is so if the entropy of the samples' histogram hardly grew over the second half of the
    samples. This is the stopping rule of NVIDIA's nvbench. In nvbench, a histogram bin is one tick
    of a timer. The ticks of host clocks are too short for bins, so here a bin is 0.5 % of the
    median. The bias of a small sample (Miller and Madow, 1955) is removed.
    """
    values = np.asarray(samples, np.float64).ravel()
    n = values.size
    if n < _FLAT_LEAST:
        return False
    width = max(_BIN * float(np.median(values)), np.finfo(np.float64).tiny)
    _, bins = np.unique(np.floor(values / width), return_inverse=True)
    ends = np.linspace(n // 2, n, 9).astype(np.int64)
    entropies = np.array([_entropy_bits(np.bincount(bins[:end])) for end in ends])
    slope = np.polyfit(ends - ends.mean(), entropies, 1)[0]
    return bool(slope * (n - n // 2) < _FLAT_BITS)


def _entropy_bits(counts: NDArray[np.int64]) -> float:
    counts = counts[counts > 0]
    total = counts.sum()
    shares = counts / total
    return float(-(shares * np.log2(shares)).sum() + (len(counts) - 1) / (2 * total * math.log(2)))


def _geometric_median(within: NDArray[np.float64]) -> float:
    """Returns the median of ratios: the geometric mean of the two middle ones. So the median of the
    inverse ratios is the inverse of this median.
    """
    ordered = np.sort(np.log(within), axis=None)
    return math.exp((ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2)


def _medians(ordered: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the medians of 1000 random resamples. `ordered` has the samples in ascending order."""
    n = ordered.size
    rows = np.sort(rng.integers(0, n, (_RESAMPLES, n)), axis=1)
    return np.asarray((ordered[rows[:, (n - 1) // 2]] + ordered[rows[:, n // 2]]) / 2)


def _resampled_medians(within: NDArray[np.float64], length: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the medians of 1000 random resamples of `within`, shape (rounds, pairs).

    Resamples rounds in blocks of `length` consecutive rounds. A block that reaches the last round continues with the
    first round.
    """
    rounds, pairs = within.shape
    starts = rng.integers(0, rounds, (_RESAMPLES, -(-rounds // length)))
    picked = (starts[:, :, None] + np.arange(length)) % rounds
    picked = picked.reshape(_RESAMPLES, -1)[:, :rounds]
    offsets = np.arange(_RESAMPLES)[:, None] * rounds
    counts = np.bincount((picked + offsets).ravel(), minlength=_RESAMPLES * rounds).reshape(_RESAMPLES, rounds)
    order = np.argsort(within, axis=None, kind="stable")
    reached = np.cumsum(counts[:, order // pairs], axis=1)
    total = rounds * pairs
    logs = np.log(within.ravel()[order])
    below = logs[(reached >= (total + 1) // 2).argmax(axis=1)]
    above = logs[(reached >= total // 2 + 1).argmax(axis=1)]
    return np.asarray(np.exp((below + above) / 2))


def _student(freedom: int) -> float:
    """Returns Student's quantile for the confidence of `_Z`, with `freedom` degrees of freedom. It
    is exact to 1 % from 3 degrees of freedom on.

    The quantile comes from the expansion in Abramowitz and Stegun, 26.7.5. A bootstrap of few
    samples gives an interval that is too narrow. An interval from normal quantiles is too narrow by
    the same factor. Student's quantile corrects the width.
    """
    f = max(freedom, 3)
    z = _Z
    return float(z + (z**3 + z) / (4 * f) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f**2))


@lru_cache(maxsize=256)
def _rank(n: int) -> int:
    """Returns how many of n sorted samples lie below the median's interval. Equally many lie above the interval."""
    if n < _LEAST:
        return 0
    if n > _EXACT:
        return max(0, math.floor((n - _Z * math.sqrt(n)) / 2) - 1)
    # The interval from the (k+1)th smallest to the (k+1)th largest misses the median with 2 P(Bin(n, 1/2) <= k).
    most = (1 - CONFIDENCE) / 2 * 2**n
    total, k = 0, -1
    while total + math.comb(n, k + 1) <= most:
        k += 1
        total += math.comb(n, k)
    return max(k, 0)
