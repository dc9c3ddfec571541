"""Aligns the clocks of a job's machines, by comparing the ends of symmetric collectives.

A symmetric collective is an all-reduce, an all-gather, a reduce-scatter or a barrier. All ranks that take part in such
a collective finish it nearly at the same time. So each symmetric collective compares the clocks of its ranks. A clock
differs from the job's common time by an offset and a drift. The offsets and drifts of all clocks are fitted to all
symmetric collectives at once, by robust regression (Huber's weights, then Tukey's). So if a collective ends late on one
rank, the clock of this rank is not shifted. The drift has a prior of 50 ppm, the tolerance of common quartz
oscillators.

The differences that remain after the fit are the residual. Times of two clocks can be compared only if they differ by
more than the residual.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.timeline.columns import I64
from unstall.timeline.grouping import groups, median

_DRIFT = 50e-6
_HUBER = 1.345  # 95 % efficiency if errors are normal (Huber 1981)
_TUKEY = 4.685  # likewise (Beaton and Tukey 1974); it gives ends that are far off no weight
_TO_SIGMA = 1.4826  # from the median absolute deviation, for normal errors
_ROUNDS = 12
_FLOOR_NS = 1.0

_Reals = NDArray[np.float64]


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """The fitted clocks of a job. If a clock shows the local time t, the time of the job is t - offset - drift * (t -
    middle).

    Attributes:
        offset: The offset of each clock, in ns.
        drift: The drift of each clock, as a share of the elapsed time.
        middle: The local time at which the drift is 0, in ns.
        part: A number for each clock. Two clocks with different numbers could not be compared, because no collectives
            connect them.
        residual_ns: A robust standard deviation of the ends of collectives after the fit, in ns. None if there is only
            one clock. Infinite if no collective could be used.
    """

    offset: _Reals
    drift: _Reals
    middle: int
    part: I64
    residual_ns: float | None

    def aligned(self, clock: I64, time: I64) -> I64:
        """Converts local times into times of the job. Returns an array of times in ns.

        Args:
            clock: For each time, the index of the clock that measured it.
            time: The local times, in ns.
        """
        off = self.offset[clock] + self.drift[clock] * (time - self.middle)
        return time - np.rint(off).astype(np.int64)


def align(operation: I64, clock: I64, time: I64, clocks: int) -> Clocks:
    """Fits the clocks of a job, so that each collective ends at about the same time on all ranks. Returns the fitted
    clocks.

    Each array has one value for each end: the end of one collective on one rank.

    Args:
        operation: For each end, the number of the collective. The numbers are in ascending order.
        clock: For each end, the index of the clock that measured its time.
        time: For each end, its time on that clock, in ns.
        clocks: The number of clocks.
    """
    offset, drift = np.zeros(clocks), np.zeros(clocks)
    if clocks < 2 or not len(time):
        return Clocks(offset, drift, 0, np.arange(clocks) * int(clocks > 1), None if clocks < 2 else np.inf)
    _, operation = np.unique(operation, return_inverse=True)
    count = int(operation.max()) + 1
    base = int(time.min())
    t = (time - base).astype(np.float64)
    offset, part = _first_offsets(operation, clock, t, clocks)
    near = t - offset[clock]
    middle, span = float(near.mean()), max(float(np.ptp(near)), 1.0)
    u = (near - middle) / span

    weight = np.ones(len(t))
    add, slope = np.zeros(clocks), np.zeros(clocks)
    sigma = np.inf
    for number in range(_ROUNDS):
        # The drift's prior, in the units of the residuals.
        prior = 0.0 if not np.isfinite(sigma) else (max(sigma, _FLOOR_NS) / (_DRIFT * span)) ** 2
        add, slope = _solve((operation, count), (clock, clocks), u, near, weight, prior)
        rest = near - add[clock] - slope[clock] * u
        rest -= _means(operation, count, rest, weight)[operation]
        shared = np.bincount(operation, minlength=count)[operation]
        # A mean of n ends takes 1/n of the variance with it.
        scaled = rest / np.sqrt(np.maximum(1 - 1 / shared, 0.5))
        sigma = max(_TO_SIGMA * float(median(np.abs(scaled))), _FLOOR_NS)
        far = np.abs(scaled) / sigma
        if number < _ROUNDS // 2:
            weight = np.minimum(1.0, _HUBER / np.maximum(far, 1e-9))
        else:
            weight = np.maximum(1 - (far / _TUKEY) ** 2, 0) ** 2
    drift = slope / span
    # `near` is local time less the first offset; its middle is where the drift is 0.
    total = offset + add
    middle_local = base + round(middle)
    return Clocks(total - drift * offset, drift, middle_local, part, sigma)


def _first_offsets(operation: I64, clock: I64, t: _Reals, clocks: int) -> tuple[_Reals, I64]:
    """Returns `(offset, part)`. `offset` is a rough offset of each clock, in ns. `part` is a number for each clock. Two
    clocks have the same number if collectives connect them, directly or through other clocks."""
    offset, part = np.zeros(clocks), np.full(clocks, -1, dtype=np.int64)
    count = int(operation.max()) + 1
    number = 0
    while (part < 0).any():
        seen = np.bincount(clock, minlength=clocks) * (part < 0)
        reference = int(seen.argmax()) if seen.any() else int(np.flatnonzero(part < 0)[0])
        part[reference] = number
        while True:
            known = part[clock] == number
            if not known.any():
                break
            total = np.bincount(operation[known], (t - offset[clock])[known], count)
            several = np.bincount(operation[known], minlength=count)
            when = total / np.maximum(several, 1)
            new = (part[clock] < 0) & (several[operation] > 0)
            if not new.any():
                break
            over = (t - when[operation])[new]
            for each, mine in groups(clock[new]):
                offset[each] = float(median(over[mine]))
                part[each] = number
        number += 1
    return offset, part


def _means(operation: I64, count: int, values: _Reals, weight: _Reals) -> _Reals:
    total = np.bincount(operation, values * weight, count)
    return total / np.maximum(np.bincount(operation, weight, count), 1e-12)


def _solve(
    operations: tuple[I64, int], clocks: tuple[I64, int], u: _Reals, y: _Reals, weight: _Reals, prior: float
) -> tuple[_Reals, _Reals]:
    """Solves a weighted least-squares problem by conjugate gradients: y = time of the collective + offset of the clock
    + slope of the clock * u. The times of the collectives are eliminated.

    Returns `(offset, slope)` with one value for each clock. The mean of the offsets is 0 and the mean of the slopes is
    0, because only differences between clocks are known.
    """
    operation, count = operations
    clock, number = clocks

    def centred(values: _Reals) -> _Reals:
        return values - _means(operation, count, values, weight)[operation]

    def transposed(values: _Reals) -> _Reals:
        weighted = weight * centred(values)
        return np.concatenate((np.bincount(clock, weighted, number), np.bincount(clock, weighted * u, number)))

    ridge = np.concatenate((np.zeros(number), np.full(number, prior)))

    def applied(x: _Reals) -> _Reals:
        return transposed(x[:number][clock] + x[number:][clock] * u) + ridge * x

    x = np.zeros(2 * number)
    left = transposed(y)
    step = left.copy()
    size = float(left @ left)
    least = 1e-18 * max(size, 1e-30)
    for _ in range(4 * number + 16):
        if size <= least:
            break
        image = applied(step)
        curve = float(step @ image)
        if curve <= 0:
            break
        x += size / curve * step
        left -= size / curve * image
        before, size = size, float(left @ left)
        step = left + size / before * step
    offset, slope = x[:number], x[number:]
    return offset - offset.mean(), slope - slope.mean()
