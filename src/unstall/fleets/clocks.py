"""Aligns the clocks of a job's machines, by comparing the ends of symmetric collectives.

A symmetric collective is an all-reduce, an all-gather, a reduce-scatter or a barrier. All ranks that take part in such
a collective finish it nearly at the same time. So each symmetric collective compares the clocks of its ranks. A clock
differs from the job's common time by an offset and a drift. The offsets and drifts of all clocks are fitted to all
symmetric collectives at once, by robust regression (Huber's weights, then Tukey's). So if a collective ends late on one
rank, the clock of this rank is not shifted. The drift has a prior of 50 ppm, the tolerance of common quartz
oscillators, with the heavy tails of Cauchy's distribution. How much it weighs against the ends is told by a fit without
it.

The differences that remain after the fit are the residual, as they would be if the fit had no unknowns. Times of two
clocks can be compared only if they differ by more than the residual.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace
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
_ANY_DRIFT, _NO_DRIFT = 1e-9, 1e12  # priors before the jitter of the ends is known

_Reals = NDArray[np.float64]


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """The fitted clocks of a job. If a clock shows the local time t, the time of the job is t - offset - drift * (t -
    middle) - shift. Each array has one value for each clock.

    Attributes:
        offset: The offset of each clock, in ns.
        drift: The drift of each clock, as a share of the elapsed time.
        middle: The local time at which a clock is off by its offset alone, in ns.
        part: A number for each clock. Two clocks with different numbers could not be compared, because no collectives
            connect them.
        shift: What is subtracted so that parts whose clocks could not be compared begin together, in ns.
        residual_ns: A robust standard deviation of the ends of collectives after the fit, in ns. None if there is only
            one clock. Infinite if it is unknown, because there are too few collectives.
    """

    offset: I64
    drift: _Reals
    middle: I64
    part: I64
    shift: I64
    residual_ns: float | None

    @property
    def known_residual_ns(self) -> float:
        """The residual in ns. 0 if it is unknown, or if there is only one clock."""
        known = self.residual_ns is not None and np.isfinite(self.residual_ns)
        return self.residual_ns if known and self.residual_ns is not None else 0.0

    def aligned(self, clock: I64, time: I64) -> I64:
        """Converts local times into times of the job. Returns an array of times in ns.

        Args:
            clock: For each time, the index of the clock that measured it.
            time: The local times, in ns.
        """
        drifted = self.drift[clock] * (time - self.middle[clock])
        return time - self.offset[clock] - np.rint(drifted).astype(np.int64) - self.shift[clock]

    def begun_together(self, clock: I64, begin: I64) -> Clocks:
        """Returns the clocks, so shifted that the earliest of the given times in each part is the same time of the job.

        Args:
            clock: For each time, the index of the clock that measured it. Each clock measured one at least.
            begin: The local times, in ns.
        """
        earliest = np.full(len(self.offset), np.iinfo(np.int64).max)
        np.minimum.at(earliest, self.part[clock], self.aligned(clock, begin))
        return replace(self, shift=self.shift + earliest[self.part] - earliest[:1])


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
        return Clocks(none, np.zeros(clocks), none, parts, none, None if clocks < 2 else np.inf)
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
    weight, every = np.ones(len(y)), np.ones(len(y))
    u = (y - ends.centred(y, every) - middle) / span
    # A mean of n ends takes 1/n of the variance with it.
    shared = np.sqrt(np.maximum(1 - 1 / ends.of_operations(every)[ends.operation], 0.5))
    told = _freedom(ends, forest, u, np.full(clocks, _ANY_DRIFT)) > 1e-6
    prior = np.full(clocks, _ANY_DRIFT if told else _NO_DRIFT)
    found, sigma, expected = np.zeros((2, clocks)), np.inf, np.inf
    for number in range(_ROUNDS):
        found = solve(ends, forest, u, y, weight, prior, found)
        of_job = y - found[0][clock] - found[1][clock] * u
        off = ends.centred(of_job, weight)
        u = (of_job - off - middle) / span
        rest = np.abs(off) / shared
        sigma = _spread(rest, _freedom(ends, forest, u, prior))
        far = rest / sigma
        if number < _ROUNDS // 2:
            weight = np.minimum(1.0, _HUBER / np.maximum(far, 1e-9))
            expected = sigma
        else:
            weight = np.maximum(1 - (far / _TUKEY) ** 2, 0) ** 2
        if number >= _ROUNDS // 2 - 1 and np.isfinite(expected):
            # In the units of the differences that remain. Some clocks drift far more than a quartz oscillator, so large
            # drifts are as likely as by Cauchy's distribution.
            usual = _DRIFT * span
            prior = (expected / usual) ** 2 / (1 + (found[1] / usual) ** 2)
    add, slope = found[0], found[1] / span
    offset = first + np.rint(add).astype(np.int64)
    return Clocks(offset, slope / (1 + slope), offset + begin + middle, forest.part, none, sigma)


def _spread(rest: _Reals, free: float) -> float:
    """Returns a robust standard deviation of the ends. Infinite if the fit leaves no degree of freedom: the ends then
    agree, whatever they are.

    A robust fit with p unknowns may go through p ends, so as many of the smallest differences say nothing (as in
    MATLAB's `robustfit`).

    Args:
        rest: The differences that remain after a fit, without their signs.
        free: The degrees of freedom that the fit leaves, as a share of those without an unknown clock.
    """
    if free <= 0:
        return np.inf
    telling = np.sort(rest)[min(int((1 - free) * len(rest)), len(rest) - 1) :]
    return max(_TO_SIGMA * float(median(telling)), _FLOOR_NS)


def _freedom(ends: Ends, forest: Forest, u: _Reals, prior: _Reals) -> float:
    """Returns the degrees of freedom of a fit, as a share of those of a fit with known clocks. The unknown clocks have
    an offset and a slope each, but for one clock of each part. A slope counts as far as the ends tell it, not its
    prior."""
    every = np.ones(len(u))
    known = 1 - 1 / ends.of_operations(every)[ends.operation]
    total, first = ends.of_clocks(known), ends.of_clocks(known * u)
    told = ends.of_clocks(known * u**2) - first**2 / np.maximum(total, 1e-12)
    slopes = np.maximum(told, 0) / (np.maximum(told, 0) + prior)
    most = np.zeros(len(slopes))
    np.maximum.at(most, forest.part, slopes)
    offsets = ends.clocks - len(forest.levels[0])
    return float(1 - (offsets + slopes.sum() - most.sum()) / (len(u) - ends.operations))
