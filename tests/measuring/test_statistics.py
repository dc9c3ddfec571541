"""Intervals that hold what they claim to, whatever the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from unstall.measuring.statistics import Spread, entropy_flat, ratio_interval

TIMES = arrays(np.float64, st.integers(1, 60), elements=st.floats(1, 1e9))


def test_a_spread_of_few_samples_is_bounded_by_all_of_them() -> None:
    spread = Spread.of([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (spread.n, spread.median, spread.low, spread.high, spread.mean) == (5, 3.0, 1.0, 5.0, 3.0)
    assert (spread.q1, spread.q3, spread.iqr) == (2.0, 4.0, 2.0)


def test_the_interval_of_a_median_is_of_the_ranks_that_tables_give() -> None:
    # Conover, Practical Nonparametric Statistics: for n = 20 the 6th and the 15th, for n = 100 the 40th and the 61st.
    for n, rank in ((6, 1), (9, 2), (20, 6), (100, 40)):
        spread = Spread.of(np.arange(1, n + 1))
        assert (spread.low, spread.high) == (rank, n + 1 - rank)


def test_the_interval_of_many_samples_goes_on_from_that_of_fewer() -> None:
    exact, near = Spread.of(np.arange(1000)), Spread.of(np.arange(1002))
    assert abs(exact.low - near.low) <= 2


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        spread = Spread.of(rng.lognormal(0, 1, 35))
        held += spread.low <= 1 <= spread.high
    assert held >= 945


@given(TIMES)
def test_a_spread_is_in_order(samples: NDArray[np.float64]) -> None:
    spread = Spread.of(samples)
    assert samples.min() <= spread.low <= spread.median <= spread.high <= samples.max()
    assert spread.q1 <= spread.median <= spread.q3


def test_a_spread_does_not_change_with_the_samples_it_was_made_of() -> None:
    samples = np.array([1.0, 2.0, 3.0])
    spread = Spread.of(samples)
    samples[:] = 9
    assert list(spread.samples) == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        spread.samples[0] = 1


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_there_is_no_spread_of_nothing_or_of_no_number(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Spread.of(samples)


def test_a_spread_of_zeros_is_known_exactly() -> None:
    assert Spread.of(np.zeros(10)).relative_ci == 0


@given(TIMES, st.floats(0.1, 10))
def test_a_multiple_of_the_same_rounds_has_that_ratio_in_its_interval(times: NDArray[np.float64], by: float) -> None:
    interval = ratio_interval(times * by, times, pairs=True)
    assert interval.median == pytest.approx(by)
    assert interval.low <= interval.median <= interval.high


@given(arrays(np.float64, st.tuples(st.integers(1, 30), st.just(2)), elements=st.floats(1, 1e6)), st.data())
def test_the_ratio_of_swapped_sides_is_the_inverse(a: NDArray[np.float64], data: st.DataObject) -> None:
    b = data.draw(arrays(np.float64, a.shape, elements=st.floats(1, 1e6)))
    one, other = ratio_interval(a, b, pairs=True), ratio_interval(b, a, pairs=True)
    assert one.median == pytest.approx(1 / other.median)


def test_a_drift_that_both_share_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(2)
    drift = np.exp(np.cumsum(rng.normal(0, 0.05, 100)))[:, None]
    times = drift * np.exp(rng.normal(0, 0.005, (100, 2)))
    others = drift * np.exp(rng.normal(0, 0.005, (100, 2)))
    paired, apart = ratio_interval(times, others, pairs=True), ratio_interval(times, others, pairs=False)
    assert paired.high - paired.low < 0.005
    assert apart.high - apart.low > 0.05


def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for seed in range(300):
        a, b = rng.lognormal(0, 0.05, (2, 40, 2))
        interval = ratio_interval(1.03 * a, b, pairs=True, seed=seed)
        held += interval.low <= 1.03 <= interval.high
    assert held >= 276  # 92 %


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [([], [1.0], "samples of both"), ([1.0, 2.0], [1.0], "no pairs"), ([0.0], [1.0], "above zero")],
)
def test_what_is_no_ratio_is_said(a: list[float], b: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ratio_interval(a, b, pairs=True)


def test_the_entropy_of_steady_noise_becomes_flat() -> None:
    rng = np.random.default_rng(4)
    noise = 1e6 * rng.normal(1, 0.02, 4000)
    assert not entropy_flat(noise[:32])
    assert entropy_flat(noise)


def test_the_entropy_of_times_that_still_find_new_values_is_not_flat() -> None:
    rng = np.random.default_rng(5)
    assert not entropy_flat(1e6 * (np.linspace(1, 2, 1000) + rng.normal(0, 0.001, 1000)))
