"""Runs candidates (the functions to compare) in rounds, and compares the time of each with the time
of the first.

A round runs all candidates in random order, then in reverse order. With two candidates, a round is
ABBA or BAAB. So if the machine gets steadily slower or faster within a round, this has no effect on
the ratio of the times.

The rounds are a test of equivalence. Two times count as the same if their ratio lies between two
borders, 1 + margin and 1 / (1 + margin). The rounds end as soon as the confidence interval of each
ratio contains neither border. So equal functions need as many rounds as different ones. The
interval is checked often. This hardly increases the risk of a wrong answer: an answer is wrong only
if the interval misses the true ratio by a whole margin.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unstall.figures import counted
from unstall.measuring.progress import tell
from unstall.measuring.statistics import Interval, half_of_few, ratio_interval

Take: TypeAlias = Callable[[Sequence[int]], ArrayLike]
"""A function that runs candidates (the functions to compare) in the given order, each for a short
time. It returns, for each entry of the order, the candidate's time per call in ns.
"""
Answer: TypeAlias = Literal["FAST", "SLOW", "SAME", "UNCLEAR"]

MARGIN = 0.015
_FEWEST_ROUNDS = 3  # from which pairs show their own noise
_LEAST_NOISE = 0.01  # least relative noise assumed for a time with few samples
_LEAST_ROUNDS = 24
_LEAST_SECONDS = 0.2  # shorter runs see only one momentary state of the machine
_MOST_ROUNDS = 4096
_GROWTH = 1.2


@dataclass(frozen=True, eq=False)
class Rounds:
    """The measured times of several candidates (functions to compare) that ran in turn.

    Attributes:
        times: ns per call, float64, shape (candidates, rounds, 2). Each candidate runs twice in
            each round.
        stopped: Why no more rounds were run.
        noiseless: Whether the times come from the model of a virtual GPU, and so have no noise.
    """

    times: NDArray[np.float64]
    stopped: str
    noiseless: bool = False  # times from a model

    def ratio(self, one: int, other: int) -> Interval:
        """Returns the time of one candidate divided by the time of another, with the 95 % interval
        of this ratio. The candidates are the functions to compare.

        With one or two rounds, few pairs of times are compared, and they may agree by chance. So if
        the times have noise, the interval is then at least as wide as Student's interval for a
        noise of 1 % or more.

        Args:
            one: The index of the first candidate.
            other: The index of the candidate by whose time is divided.
        """
        if one == other:
            return Interval(1.0, 1.0, 1.0)
        found = ratio_interval(self.times[one], self.times[other], pairs=True, seed=len(self.times[0]))
        if self.times.shape[1] >= _FEWEST_ROUNDS or self.exact or self.noiseless:
            return found
        half = half_of_few(self.times[one], self.times[other], least=_LEAST_NOISE)
        return Interval(found.median, min(found.low, found.median / half), max(found.high, found.median * half))

    @property
    def exact(self) -> bool:
        """Whether each candidate (each function to compare) took exactly the same time in all its
        turns, over at least two rounds. If so, the times come from the model of a virtual GPU, and
        no more rounds are needed.
        """
        return self.times.shape[1] > 1 and not np.ptp(self.times, axis=(1, 2)).any()

    def answer(self, one: int, other: int, margin: float) -> Answer:
        """Returns how the time of one candidate compares with the time of another: FAST, SLOW, SAME
        or UNCLEAR. The candidates are the functions to compare.

        Args:
            one: The index of the candidate that is judged.
            other: The index of the candidate with which it is compared.
            margin: The times are the same if they differ by at most this fraction.
        """
        return answer(self.ratio(one, other), margin)


def answer(ratio: Interval, margin: float) -> Answer:
    """Returns how the time of a function compares with the reference's time: FAST, SLOW, SAME or
    UNCLEAR.

    Args:
        ratio: The function's time, divided by the reference's time.
        margin: The times are the same if they differ by at most this fraction.
    """
    if is_within(ratio, margin):
        return "SAME"
    if ratio.high < 1:
        return "FAST"
    return "SLOW" if ratio.low > 1 else "UNCLEAR"


def is_within(ratio: Interval, margin: float) -> bool:
    """Returns whether two times are the same within `margin`: whether the whole interval of their
    ratio lies between 1 / (1 + margin) and 1 + margin.
    """
    return ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin


def is_answered(ratio: Interval, margin: float) -> bool:
    """Returns whether the interval of `ratio` contains neither 1 + margin nor 1 / (1 + margin). If
    it contains neither, more rounds would not change the answer whether two times are the same
    within `margin`.
    """
    return is_within(ratio, margin) or ratio.high < 1 / (1 + margin) or ratio.low > 1 + margin


def by_turns(
    take: Take,
    candidates: int,
    *,
    margin: float = MARGIN,
    max_seconds: float = 5.0,
    seed: int = 0,
    noiseless: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Rounds:
    """Runs candidates (the functions to compare) in rounds until the answer for every candidate is
    known, or until `max_seconds` are over.

    Args:
        take: Runs candidates in a given order and returns the candidates' times.
        candidates: The number of candidates. The first is the reference.
        margin: A candidate is SAME if its time differs from the reference's time by at most this
            fraction.
        max_seconds: The time limit, by `clock`.
        seed: The seed of the random order.
        noiseless: Whether times come from the model of a virtual GPU. If so, two rounds can be
            enough.
        clock: The clock for the time limit, in s.
    """
    rng = np.random.default_rng(seed)
    began = clock()
    rounds: list[NDArray[np.float64]] = []
    look, count = 2 if noiseless else _LEAST_ROUNDS, 1  # the first round shows how long others take
    least_seconds = 0.0 if noiseless else min(_LEAST_SECONDS, max_seconds / 2)

    def found(stopped: str = "") -> Rounds:
        return Rounds(np.array(rounds).transpose(1, 0, 2), stopped, noiseless)

    while True:
        tell(f"{counted(len(rounds), 'round')} so far" if rounds else "the first round")
        order = [_order(candidates, rng) for _ in range(count)]
        times = np.asarray(take([one for each in order for one in each]), np.float64)
        rounds += [_by_candidate(*each) for each in zip(order, times.reshape(count, -1), strict=True)]
        done, spent = len(rounds), clock() - began
        if done > 1 and found().exact:
            return found("the times are always the same")
        if done >= look or done == _MOST_ROUNDS:
            ratios = (found().ratio(other, 0) for other in range(1, candidates))
            if spent >= least_seconds and all(is_answered(ratio, margin) for ratio in ratios):
                return found("the question is answered")
            if done == _MOST_ROUNDS:
                return found(f"{_MOST_ROUNDS:,} rounds are over")
            look = min(math.ceil(look * _GROWTH), _MOST_ROUNDS)
        affordable = (max_seconds - spent) * done / spent if spent > 0 else look
        if affordable < 1:
            return found("time is up")
        count = 1 if done == 1 else min(look - done, int(affordable))


def _order(candidates: int, rng: np.random.Generator) -> list[int]:
    once: list[int] = rng.permutation(candidates).tolist()
    return once + once[::-1]


def _by_candidate(order: list[int], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sorts the times of one round by candidate. Returns an array of shape (candidates, 2).

    Args:
        order: The candidate that ran, for each time.
        times: The times of the round, in the order in which they were taken.
    """
    return times[np.argsort(order, kind="stable")].reshape(-1, 2)
