"""When sampling stops, and what it says then."""

from __future__ import annotations

import time

import numpy as np

from unstall.bench.sampling import sample_until


def test_it_stops_where_the_median_is_known() -> None:
    rng = np.random.default_rng(1)
    sampled = sample_until(lambda count: rng.normal(1000, 1, count), rel_ci=0.01, seconds=60)
    assert sampled.converged
    assert sampled.stopped == "the median is known to 1 %"
    assert sampled.spread.n == 10
    assert abs(sampled.spread.median - 1000) < 2


def test_it_stops_where_more_samples_tell_no_more_of_the_noise() -> None:
    rng = np.random.default_rng(1)
    sampled = sample_until(lambda count: rng.choice([1.0, 2.0], count), rel_ci=0.0001, seconds=60)
    assert sampled.converged
    assert "tell no more" in sampled.stopped


def test_it_stops_where_time_is_up_and_keeps_to_it() -> None:
    rng = np.random.default_rng(1)

    def take(count: int) -> list[float]:
        time.sleep(0.002 * count)
        return rng.lognormal(0, 3, count).tolist()  # type: ignore[no-any-return]

    began = time.monotonic()
    sampled = sample_until(take, rel_ci=0.0001, seconds=0.1)
    assert time.monotonic() - began < 0.3
    assert not sampled.converged
    assert sampled.stopped.startswith("time is up: the median is known to ± ")


def test_no_noise_at_all_is_known_at_once() -> None:
    sampled = sample_until(lambda count: [5.0] * count, rel_ci=0.01, seconds=60)
    assert (sampled.converged, sampled.spread.n) == (True, 10)
