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

from unstall.fleets.spanning import Ends, Forest, solve
from unstall.timeline.columns import I64
from unstall.timeline.grouping import median

_DRIFT = 50e-6
_HUBER = 1.345  # 95 % efficiency if errors are normal (Huber 1981)
_TUKEY = 4.685  # likewise (Beaton and Tukey 1974); it gives ends that are far off no weight
_TO_SIGMA = 1.4826  # from the median absolute deviation, for normal errors
_ROUNDS = 12
_FLOOR_NS = 1.0

_Reals = NDArray[np.float64]


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """The fitted clocks of a job. If a clock shows the local time t, the time of the job is t - offset - drift * (t -
    middle). Each array has one value for each clock.

    Attributes:
        offset: The offset of each clock, in ns.
        drift: The drift of each clock, as a share of the elapsed time.
        middle: The local time at which a clock is off by its offset alone, in ns.
        part: A number for each clock. Two clocks with different numbers could not be compared, because no collectives
            connect them.
        residual_ns: A robust standard deviation of the ends of collectives after the fit, in ns. None if there is only
            one clock. Infinite if no collective could be used.
    """

    offset: I64
    drift: _Reals
    middle: I64
    part: I64
    residual_ns: float | None

    def aligned(self, clock: I64, time: I64) -> I64:
        """Converts local times into times of the job. Returns an array of times in ns.

        Args:
            clock: For each time, the index of the clock that measured it.
            time: The local times, in ns.
        """
        drifted = self.drift[clock] * (time - self.middle[clock])
        return time - self.offset[clock] - np.rint(drifted).astype(np.int64)


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
    none = np.zeros(clocks, dtype=np.int64)
    several = np.bincount(operation, minlength=1)[operation] > 1
    operation, clock, time = operation[several], clock[several], time[several]
    if clocks < 2 or not len(time):
        parts = np.arange(clocks) * int(clocks > 1)
        return Clocks(none, np.zeros(clocks), none, parts, None if clocks < 2 else np.inf)
    ends = Ends(np.unique(operation, return_inverse=True)[1], clock, clocks)
    forest = Forest.of(ends)
    # Clocks may be years apart, so large times are subtracted as integers.
    first = forest.offsets(ends, time)
    near = time - first[clock]
    begin = np.full(clocks, np.iinfo(np.int64).max)
    np.minimum.at(begin, forest.part[clock], near)
    begin = np.where(begin < np.iinfo(np.int64).max, begin, 0)[forest.part]
    y = (near - begin[clock]).astype(np.float64)
    middle, span = round(float(y.mean())), max(float(np.ptp(y)), 1.0)
    u = (ends.of_operations(y) / ends.of_operations(np.ones(len(y))))[ends.operation]
    u = (u - middle) / span

    weight = np.ones(len(y))
    found = np.zeros((2, clocks))
    sigma = np.inf
    # A mean of n ends takes 1/n of the variance with it.
    shared = np.sqrt(np.maximum(1 - 1 / ends.of_operations(weight)[ends.operation], 0.5))
    for number in range(_ROUNDS):
        # The drift's prior, in the units of the residuals.
        prior = 1e-9 if not np.isfinite(sigma) else (max(sigma, _FLOOR_NS) / (_DRIFT * span)) ** 2
        found = solve(ends, forest, u, y, weight, prior, found if number else None)
        rest = np.abs(ends.centred(y - found[0][clock] - found[1][clock] * u, weight)) / shared
        sigma = max(_TO_SIGMA * float(median(rest)), _FLOOR_NS)
        far = rest / sigma
        if number < _ROUNDS // 2:
            weight = np.minimum(1.0, _HUBER / np.maximum(far, 1e-9))
        else:
            weight = np.maximum(1 - (far / _TUKEY) ** 2, 0) ** 2
    add, slope = found
    offset = first + np.rint(add).astype(np.int64)
    return Clocks(offset, slope / span, first + begin + middle, forest.part, sigma)
