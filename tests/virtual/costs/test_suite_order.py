"""The order of the cases that `unstall calibrate` measures."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from unstall.virtual.costs.suite import cases


def test_a_calibration_that_ends_early_has_measured_each_operator() -> None:
    suite = cases(0)
    overloads = {case.operator for case in suite}
    assert {case.operator for case in suite[: len(overloads)]} == overloads
    early = Counter(case.operator for case in suite[: 10 * len(overloads)])
    assert all(early[case] >= min(10, count) for case, count in Counter(case.operator for case in suite).items())


def test_after_some_of_each_the_most_important_cases_come_first() -> None:
    suite = cases(1)
    seen: Counter[str] = Counter()
    ranks = []
    for case in suite:
        seen[case.operator] += 1
        if seen[case.operator] > 24:
            ranks.append(case.rank)
    assert [rank for rank, _ in groupby(ranks)] == [0, 1]


def test_the_order_is_always_the_same() -> None:
    assert [case.operator for case in cases(0)] == [case.operator for case in cases(0)]
