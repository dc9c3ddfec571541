"""Statistical tests: is a rank slower than its peers by more than chance explains? Peers are the ranks that do the same
work on different data.

With four ranks or more, a rank is compared with its peers: is it further from them than they are from one another
(Grubbs' test, repeated for several outliers as in Rosner's generalised ESD test)? If all GPUs of a job have slightly
different clock rates, none of them is an outlier.

With two or three ranks, the steps are compared: is the rank slower than its peers in so many steps, and so evenly, that
chance does not explain it (Student's paired test)?

A rank that is late in only a few steps is not a slow rank. `outlying_steps` finds these steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.columns import I64
from unstall.timeline.grouping import median

SIGNIFICANCE = 0.001
"""The probability that the tests name at least one rank in a job that has no slow rank, if the times are normally
distributed."""

_ENOUGH_PEERS = 3
_NOTABLE = 0.1  # of what a rank is late by in its latest step
_ROUNDS, _TINY = 300, 1e-300
_Reals = NDArray[np.float64]


def chance_of(t: float, freedom: float) -> float:
    """Returns the probability that a value of Student's t distribution with `freedom` degrees of freedom exceeds
    `t`."""
    if freedom <= 0 or math.isnan(t):
        return 1.0
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return tail if t > 0 else 1 - tail


def _beta(x: float, a: float, b: float) -> float:
    """Returns the regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method, DLMF
    8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), _TINY)
    result = d
    for m in range(1, _ROUNDS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            c = 1 + term / c
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            result *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return min(front * result, 1.0)


def slower_than_peers(times: _Reals, families: int = 1) -> dict[int, float]:
    """Finds the ranks that are slower than their peers by more than chance explains.

    Args:
        times: An array of shape (ranks, steps): each rank's time in each step, in any unit.
        families: The number of tests that are made together. The more there are, the stricter each is.

    Returns:
        A dict that maps the row of each slow rank in `times` to the probability that chance alone makes some rank this
        slow.
    """
    count, steps = times.shape
    if count < 2:
        return {}
    level = SIGNIFICANCE / families
    if count == 2:
        worst = int(times.mean(axis=1).argmax())
        chances = [(worst, _over_steps(times, worst, [1 - worst], steps))]
    else:
        chances = [
            (row, chance if len(rest) >= _ENOUGH_PEERS else _over_steps(times, row, rest, steps))
            for row, chance, rest in _latest_first(times.mean(axis=1))
        ]
    found = _outliers(chances, level / count)
    while found and count > 2 and not _is_even(times, found[-1][0], _others(found, count)):
        found = _outliers(chances[: len(found) - 1], level / count)
    return {row: chance * count for row, chance in found}


def _latest_first(values: _Reals) -> Iterator[tuple[int, float, I64]]:
    """Yields half of the rows, the one with the largest value first: `(row, chance, rest)`. `chance` is the probability
    of a value that is this much larger than those of the rest: of the rows that have not come yet."""
    count = len(values)
    order = np.argsort(-values, kind="stable")
    ordered = values[order] - median(values)  # so that squares stay exact
    sums, squares = (np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (ordered, ordered**2))
    for at in range(count - max(1, count // 2)):
        size = count - at - 1
        mean = sums[at + 1] / size
        spread = math.sqrt(max(squares[at + 1] / size - mean**2, 0.0) * size / max(size - 1, 1) * (1 + 1 / size))
        chance = _t_test(float(ordered[at] - mean), spread, size - 1, float(values.mean())) if size > 1 else 1.0
        yield int(order[at]), chance, order[at + 1 :]


def _outliers(chances: Sequence[tuple[int, float]], level: float) -> list[tuple[int, float]]:
    """Returns the rows of `chances` up to the last one whose chance is below `level`: as in the generalised ESD, every
    row that is further off is an outlier too. They are as unlikely as that one: several that are as slow hide each
    other."""
    last = max((at for at, (_, chance) in enumerate(chances) if chance < level), default=-1)
    return [(row, min(chance, chances[last][1])) for row, chance in chances[: last + 1]]


def _others(found: Sequence[tuple[int, float]], count: int) -> list[int]:
    rows = {row for row, _ in found}
    return [row for row in range(count) if row not in rows]


def _is_even(times: _Reals, row: int, peers: Sequence[int] | I64) -> bool:
    """Returns whether a rank is late in most steps. Returns False if the rank is late only because it is very late in a
    few steps."""
    over = times[row] - median(times[list(peers)], axis=0)
    return bool(2 * median(over) >= over.mean() > 0)


def _over_steps(times: _Reals, row: int, peers: Sequence[int] | I64, steps: int) -> float:
    over = times[row] - median(times[list(peers)], axis=0)
    if steps < 2:
        return 1.0  # one step tells nothing of chance
    return _t_test(float(over.mean()), float(over.std(ddof=1)) / math.sqrt(steps), steps - 1, float(times.mean()))


def _t_test(over: float, error: float, freedom: int, scale: float) -> float:
    # Times are whole nanoseconds, so an error of 0 says only that they are exact.
    error = max(error, 1e-9 * abs(scale), 1e-12)
    return chance_of(over / error, freedom)


def outlying_steps(times: _Reals, families: int = 1, least: float = 0) -> list[tuple[int, int, float]]:
    """Finds single steps in which a rank was slower than its peers by more than chance explains, and by so much that it
    matters. Peers that work exactly as long as each other make chance explain nothing, so a step counts only if the
    rank is late by a notable share of what it is late by in its latest step.

    Args:
        times: An array of shape (ranks, steps): each rank's time in each step, in any unit.
        families: The number of tests that are made together. The more there are, the stricter each is.
        least: The least by which a rank must be slower than the median of its peers, in the unit of `times`.

    Returns:
        A list of (row, step, chance): the row of the rank in `times`, the index of the step, and the probability that
        chance alone makes some rank this slow in some step. The list is empty if there are fewer than four ranks,
        because a single step then shows nothing.
    """
    count, steps = times.shape
    if count < 4:
        return []
    # Of each step, half of the ranks are tested.
    level = SIGNIFICANCE / families / (count * steps) / (count // 2)
    found: list[tuple[int, int, float]] = []
    late: list[float] = []
    for step in range(steps):
        column = times[:, step]
        outliers = _outliers([(row, chance) for row, chance, _ in _latest_first(column)], level)
        usual = float(median(column[_others(outliers, count)]))
        for row, chance in outliers:
            if column[row] - usual >= least:
                found.append((row, step, chance * count * steps))
                late.append(float(column[row]) - usual)
    latest = {row: max(over for over, other in zip(late, found, strict=True) if other[0] == row) for row, *_ in found}
    return [each for each, over in zip(found, late, strict=True) if over >= _NOTABLE * latest[each[0]]]
