"""Rounds go on until the question is answered, and its answer is right whatever the noise."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from unstall.measuring.comparing.rounds import MARGIN, Rounds, answer, by_turns, is_answered
from unstall.measuring.statistics import Interval

Noise = Callable[[np.random.Generator], Iterator[float]]


def quiet(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield float(np.exp(rng.normal(0, 0.01)))


def two_modes(rng: np.random.Generator) -> Iterator[float]:
    """A core that runs at one of two speeds, at random for each turn."""
    for each in quiet(rng):
        yield each * (1.3 if rng.random() < 0.5 else 1)


def busy_neighbour(rng: np.random.Generator) -> Iterator[float]:
    """Slow for stretches, drifting, and with a heavy tail at all times."""
    slow, drift = False, 0.0
    for each in quiet(rng):
        slow ^= bool(rng.random() < 0.03)
        drift += rng.normal(0, 0.004)
        yield each * (1.2 if slow else 1) * float(np.exp(drift) * (1 + 0.02 * abs(rng.standard_t(2))))


def spikes(rng: np.random.Generator) -> Iterator[float]:
    for each in quiet(rng):
        yield each * float(1 + (rng.random() < 0.15) * rng.exponential(0.8))


def _compared(noise: Noise, ratio: float, seed: int) -> Rounds:
    """Two candidates, of which the second takes `ratio` times as long, for as many rounds as are wanted."""
    disturbance = noise(np.random.default_rng(seed))

    def take(order: Sequence[int]) -> list[float]:
        return [1e5 * (ratio if one else 1.0) * next(disturbance) for one in order]

    ticks = itertools.count()
    return by_turns(take, 2, max_seconds=1_500, seed=seed, clock=lambda: next(ticks))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [quiet, two_modes, busy_neighbour, spikes])
@pytest.mark.parametrize(("ratio", "right", "least"), [(1.0, "SAME", 95), (1.03, "SLOW", 90), (1 / 1.03, "FAST", 90)])
def test_the_answer_is_right(noise: Noise, ratio: float, right: str, least: int) -> None:
    found = Counter(answer(_compared(noise, ratio, seed).ratio(1, 0), MARGIN) for seed in range(100))
    assert found[right] >= least  # type: ignore[index]


@pytest.mark.parametrize(
    ("interval", "said", "settled"),
    [
        (Interval(1.0, 0.99, 1.01), "SAME", True),
        (Interval(1.003, 1.001, 1.005), "SAME", True),
        (Interval(1.03, 1.02, 1.04), "SLOW", True),
        (Interval(1.03, 1.001, 1.06), "SLOW", False),
        (Interval(0.97, 0.96, 0.98), "FAST", True),
        (Interval(1.0, 0.97, 1.03), "UNCLEAR", False),
    ],
)
def test_an_answer_is_of_the_whole_interval(interval: Interval, said: str, settled: bool) -> None:
    assert answer(interval, 0.015) == said
    assert is_answered(interval, 0.015) is settled


def test_a_round_is_an_order_and_its_reverse() -> None:
    orders: list[list[int]] = []
    rng = np.random.default_rng(1)

    def take(order: Sequence[int]) -> list[float]:
        orders.append(list(order))
        return [float(each) for each in rng.lognormal(0, 0.1, len(order))]

    ticks = itertools.count()
    by_turns(take, 3, max_seconds=100, clock=lambda: next(ticks))
    rounds = [each[at : at + 6] for each in orders for at in range(0, len(each), 6)]
    assert all(each == each[::-1] and sorted(each[:3]) == [0, 1, 2] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_times_go_to_the_candidate_that_took_them() -> None:
    ticks = itertools.count()
    found = by_turns(lambda order: [10.0 ** (one + 1) for one in order], 3, max_seconds=9, clock=lambda: next(ticks))
    assert [set(times.ravel().tolist()) for times in found.times] == [{10.0}, {100.0}, {1000.0}]


def test_a_drift_within_the_rounds_is_no_difference() -> None:
    now = itertools.count(1000)
    ticks = itertools.count()
    found = by_turns(lambda order: [float(next(now)) for _ in order], 2, max_seconds=500, clock=lambda: next(ticks))
    assert answer(found.ratio(1, 0), MARGIN) == "SAME"


def test_time_that_is_up_is_said_and_no_answer_is_made_up() -> None:
    rng = np.random.default_rng(1)
    ticks = itertools.count()
    found = by_turns(lambda order: rng.lognormal(0, 0.5, len(order)), 2, max_seconds=6, clock=lambda: next(ticks))
    assert found.stopped == "time is up"
    assert answer(found.ratio(1, 0), MARGIN) == "UNCLEAR"


def _one_round(ratio: float) -> Rounds:
    ticks = itertools.count(0, 100)
    return by_turns(lambda order: [ratio**one for one in order], 2, max_seconds=1, clock=lambda: next(ticks))


def test_there_is_always_one_round_which_is_no_answer_where_little_noise_would_explain_it() -> None:
    found = _one_round(1.03)
    assert found.times.shape == (2, 1, 2)
    assert found.answer(1, 0, MARGIN) == "UNCLEAR"
    assert found.ratio(1, 0).low < 1 < 1.03 < found.ratio(1, 0).high
    assert _one_round(1.0).answer(1, 0, MARGIN) == "UNCLEAR"


def test_one_round_tells_what_noise_of_one_percent_does_not_explain() -> None:
    found = _one_round(1.07)
    assert found.answer(1, 0, MARGIN) == "SLOW"
    assert found.ratio(1, 0).low == pytest.approx(1.07 / np.exp(4.303 * 0.01))
    assert _one_round(1 / 1.07).answer(1, 0, MARGIN) == "FAST"


@pytest.mark.slow
@pytest.mark.parametrize("noise", [quiet, two_modes, busy_neighbour, spikes])
def test_of_two_that_are_alike_few_rounds_seldom_call_one_slower(noise: Noise) -> None:
    def found(seed: int) -> Rounds:
        disturbance = noise(np.random.default_rng(seed))
        ticks = itertools.count(0, 100)
        return by_turns(
            lambda order: [next(disturbance) for _ in order], 2, max_seconds=1, seed=seed, clock=lambda: next(ticks)
        )

    said = Counter(found(seed).answer(1, 0, MARGIN) for seed in range(200))
    assert said["UNCLEAR"] >= 160


def test_two_rounds_are_enough_where_times_are_always_the_same() -> None:
    ticks = itertools.count()
    found = by_turns(lambda order: [1.0 + one for one in order], 2, max_seconds=100, clock=lambda: next(ticks))
    assert found.stopped == "the times are always the same"
    assert found.times.shape == (2, 2, 2)
    assert found.answer(1, 0, MARGIN) == "SLOW"
