"""When sampling stops, and what it says then."""

from __future__ import annotations

import time

import numpy as np

from unstall.measuring.sampling import Until, sample_until


def test_it_stops_where_the_median_is_known() -> None:
    rng = np.random.default_rng(1)
    sampled = sample_until(lambda count: rng.normal(1000, 1, count), Until(rel_ci=0.01, seconds=60))
    assert sampled.converged
    assert sampled.stopped == "the median is known to 1 %"
    assert sampled.spread.n == 10
    assert abs(sampled.spread.median - 1000) < 2


def test_it_stops_where_more_samples_tell_no_more_of_the_noise() -> None:
    rng = np.random.default_rng(1)
    sampled = sample_until(lambda count: rng.choice([1.0, 2.0], count), Until(rel_ci=0.0001, seconds=60))
    assert sampled.converged
    assert "tell no more" in sampled.stopped


def test_it_stops_where_time_is_up_and_keeps_to_it() -> None:
    rng = np.random.default_rng(1)

    def take(count: int) -> list[float]:
        time.sleep(0.002 * count)
        return rng.lognormal(0, 3, count).tolist()  # type: ignore[no-any-return]

    began = time.monotonic()
    sampled = sample_until(take, Until(rel_ci=0.0001, seconds=0.1))
    assert time.monotonic() - began < 0.3
    assert not sampled.converged
    assert sampled.stopped.startswith("time is up: the median is known to ± ")


def test_no_noise_at_all_is_known_at_once() -> None:
    sampled = sample_until(lambda count: [5.0] * count, Until(rel_ci=0.01, seconds=60))
    assert (sampled.converged, sampled.spread.n) == (True, 10)


def test_a_first_batch_is_as_large_as_there_is_time_for() -> None:
    assert Until(rel_ci=0.01, seconds=1.0).affords(10, 2) == 10
    assert Until(rel_ci=0.01, seconds=1.0, each_s=0.2).affords(10, 2) == 5
    assert Until(rel_ci=0.01, seconds=1.0, each_s=9.0).affords(10, 2) == 2


def test_two_calls_of_a_model_tell_all_where_there_is_no_time_for_more() -> None:
    sampled = sample_until(lambda count: [7.0] * count, Until(rel_ci=0.01, seconds=0.0, alike=2), first=2)
    assert (sampled.converged, sampled.stopped) == (True, "all calls take the same, as the model has it")
    assert not sample_until(lambda count: [7.0] * count, Until(rel_ci=0.01, seconds=0.0), first=2).converged
