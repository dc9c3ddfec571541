"""A rank is named only if chance does not explain it."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.fleets.student import chance_of, outlying_steps, slower_than_peers


@pytest.mark.parametrize(
    ("t", "freedom", "chance"),
    [(2.015, 5, 0.05), (3.747, 4, 0.01), (0.0, 7, 0.5), (-2.015, 5, 0.95), (6.0, 6, 0.000483), (3.090, 1e6, 0.001)],
)
def test_the_tail_of_students_distribution_is_that_of_tables(t: float, freedom: float, chance: float) -> None:
    assert chance_of(t, freedom) == pytest.approx(chance, rel=2e-3)


def test_jitter_alone_names_nobody_in_a_thousand_jobs() -> None:
    rng = np.random.default_rng(0)
    named = sum(bool(slower_than_peers(rng.normal(100, 2, (8, 6)))) for _ in range(1000))
    assert named <= 3


def test_ranks_that_differ_a_little_and_always_are_no_stragglers() -> None:
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(500):
        steady = rng.normal(100, 2, (8, 1)) + rng.normal(0, 0.01, (8, 6))
        named += bool(slower_than_peers(steady))
    assert named <= 3


def test_three_steps_are_enough_among_eight_ranks() -> None:
    times = np.random.default_rng(1).normal(100, 1, (8, 3))
    times[3] += [12, 20, 16]
    assert set(slower_than_peers(times)) == {3}


def test_one_rank_that_is_always_slower_is_named() -> None:
    times = np.random.default_rng(1).normal(100, 1, (8, 6))
    times[3] += 15
    assert set(slower_than_peers(times)) == {3}


def test_two_slow_ranks_do_not_hide_each_other() -> None:
    times = np.random.default_rng(1).normal(100, 1, (8, 6))
    times[[3, 5]] += 20
    assert set(slower_than_peers(times)) == {3, 5}


def test_of_two_ranks_only_the_steps_can_tell() -> None:
    times = np.random.default_rng(1).normal(100, 1, (2, 10))
    assert slower_than_peers(times) == {}
    times[1] += 20
    assert set(slower_than_peers(times)) == {1}


def test_a_rank_that_is_late_once_is_told_by_the_step() -> None:
    times = np.random.default_rng(2).normal(100, 1, (8, 6))
    times[4, 2] += 60
    assert slower_than_peers(times) == {}
    assert [each[:2] for each in outlying_steps(times)] == [(4, 2)]


def test_two_ranks_that_are_late_in_one_step_do_not_hide_each_other() -> None:
    times = np.random.default_rng(0).normal(100, 1, (8, 6))
    times[[2, 5], 4] += 40
    assert {(row, step) for row, step, _ in outlying_steps(times)} == {(2, 4), (5, 4)}


def test_jitter_alone_makes_no_step_late_in_a_thousand_jobs() -> None:
    random = np.random.default_rng(7)
    assert sum(bool(outlying_steps(random.normal(100, 2, (8, 10)))) for _ in range(1000)) <= 5


def test_a_step_counts_as_late_only_if_it_matters() -> None:
    """Peers that are exactly even make chance explain nothing, also of a delay of next to nothing."""
    times = np.full((6, 8), 100.0)
    times[4] += [15, 0.1, 0.01, 16, 0.1, 2, 15, 1]
    assert [step for _, step, _ in outlying_steps(times)] == [0, 3, 5, 6]  # a tenth of the latest at least
    assert [step for _, step, _ in outlying_steps(times, least=3)] == [0, 3, 6]
    times[2, 1] += 1  # a rank is compared with its own latest step
    assert (2, 1) in [each[:2] for each in outlying_steps(times)]
