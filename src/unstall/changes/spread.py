"""Computes sums over groups, and how much the sums vary from step to step.

From this variation, computes how large a difference of two runs may be by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.changes.result import Count, Time
from unstall.timeline.columns import I64
from unstall.timeline.grouping import distinct

# Student's t, 97.5 %, for 1, 2, … degrees of freedom.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """A quantity of one run, added up for each group of things, such as the kernels with one name.

    Attributes:
        total: For each group, the sum over all steps.
        deviation: For each group, the sum of the steps' squared deviations from the mean.
        steps: The number of steps.
    """

    total: I64
    deviation: NDArray[np.float64]
    steps: int

    def per_step(self, group: int) -> int:
        """Returns the mean per step of the sum of one group. `group` is the number of the group."""
        return round(int(self.total[group]) / self.steps)


def sums(group: I64, step: I64, value: I64, groups: int, steps: int) -> Sums:
    """Returns the sum of the values in each group, and how much this sum varies from step to step.

    A group without a value in a step counts as 0 in that step.

    Args:
        group: For each value, the number of its group, from 0 on.
        step: For each value, the index of its step.
        value: The values. All values of a group in a step are added up.
        groups: The number of groups.
        steps: The number of steps.
    """
    cells, which = distinct(group * steps + step)
    cell = np.zeros(len(cells), dtype=np.int64)
    np.add.at(cell, which, value)
    of = cells // steps
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, of, cell)
    mean = total / steps
    deviation = np.zeros(groups)
    np.add.at(deviation, of, (cell - mean[of]) ** 2)
    deviation += (steps - np.bincount(of, minlength=groups)) * mean**2
    return Sums(total, deviation, steps)


def time(a: Sums, b: Sums, group: int) -> Time:
    """Returns the mean time of one group per step in both runs, with its noise: differences up to
    the noise may be chance. `group` is the number of the group.
    """
    deviation = float(a.deviation[group]) + float(b.deviation[group])
    return Time(a=a.per_step(group), b=b.per_step(group), noise=noise(deviation, a.steps, b.steps))


def count(a: Sums, b: Sums, group: int) -> Count:
    """Returns how often one group occurs per step in both runs. `group` is the number of the group."""
    return Count(a=per_step(int(a.total[group]), a.steps), b=per_step(int(b.total[group]), b.steps))


def per_step(total: int, steps: int) -> float:
    """Returns the mean per step of a sum, rounded to a thousandth. `total` is the sum over `steps` steps."""
    return round(total / steps, 3)


def noise(deviation: float, steps_a: int, steps_b: int) -> int | None:
    """Returns how large the difference of the means of two runs may be by chance (the noise); None
    if each run has one step.

    If two runs do the same, the difference of their means is larger than the noise in 1 of 20
    cases. This is Student's t test for two samples of equal variance.

    Args:
        deviation: The sum of squared deviations from the mean, added up for both runs. It estimates
            the variance.
        steps_a: The number of steps of run A.
        steps_b: The number of steps of run B.
    """
    freedom = steps_a + steps_b - 2
    if freedom < 1:
        return None
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.4 / freedom
    return round(student * math.sqrt(deviation / freedom * (1 / steps_a + 1 / steps_b)))
