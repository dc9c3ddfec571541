"""Candidates that run by turns, in rounds, until the question is answered: is one within a margin of the other?

A round is all candidates in random order and then the same in reverse: ABBA or BAAB for two, so that a drift within
the round cancels, and no candidate always comes after the same other. The question is one of equivalence. It is
answered once the interval of the ratio lies on one side of each border of the margin, and so needs as many rounds
where there is no difference as where there is one. Looking at it often, as here, makes a wrong answer hardly
likelier: the ratio must be taken for one beyond the margin.
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
"""Runs candidates for a moment each, in this order: what a call took in each, ns."""
Answer: TypeAlias = Literal["FAST", "SLOW", "SAME", "UNCLEAR"]

MARGIN = 0.015
_FEWEST_ROUNDS = 3  # of which the pairs themselves tell how noisy they are
_LEAST_NOISE = 0.01  # of a time that was taken a few times only, however alike those were
_LEAST_ROUNDS = 24
_LEAST_SECONDS = 0.2  # shorter is one moment of the machine, of which the times themselves would be
_MOST_ROUNDS = 4096
_GROWTH = 1.2


@dataclass(frozen=True, eq=False)
class Rounds:
    """What the turns took, ns per call: shape (candidates, rounds, 2). `stopped` says why there were no more."""

    times: NDArray[np.float64]
    stopped: str
    noiseless: bool = False  # a model's

    def ratio(self, one: int, other: int) -> Interval:
        """How many times as long as the other the one takes. Of less than 3 rounds all pairs may point one way by
        chance, once in 9: there the interval is Student's, of times that are noisy by 1 % at least."""
        if one == other:
            return Interval(1.0, 1.0, 1.0)
        found = ratio_interval(self.times[one], self.times[other], pairs=True, seed=len(self.times[0]))
        if self.times.shape[1] >= _FEWEST_ROUNDS or self.exact or self.noiseless:
            return found
        half = half_of_few(self.times[one], self.times[other], least=_LEAST_NOISE)
        return Interval(found.median, min(found.low, found.median / half), max(found.high, found.median * half))

    @property
    def exact(self) -> bool:
        """Whether each candidate always took the same: a model's times, of which two rounds say all."""
        return self.times.shape[1] > 1 and not np.ptp(self.times, axis=(1, 2)).any()

    def answer(self, one: int, other: int, margin: float) -> Answer:
        """What the ratio says of the one."""
        return answer(self.ratio(one, other), margin)


def answer(ratio: Interval, margin: float) -> Answer:
    """What the ratio of a candidate's time to the reference's says of the candidate."""
    if is_within(ratio, margin):
        return "SAME"
    if ratio.high < 1:
        return "FAST"
    return "SLOW" if ratio.low > 1 else "UNCLEAR"


def is_within(ratio: Interval, margin: float) -> bool:
    """Whether all of the interval is within the margin around 1."""
    return ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin


def is_answered(ratio: Interval, margin: float) -> bool:
    """Whether no border of the margin lies in the interval, so that more rounds would not change the answer."""
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
    """Run rounds until every candidate's ratio to the first is answered, or `max_seconds` are over. Of times that have
    no noise two rounds can answer it."""
    rng = np.random.default_rng(seed)
    began = clock()
    rounds: list[NDArray[np.float64]] = []
    look, count = 2 if noiseless else _LEAST_ROUNDS, 1  # by the first round the time of others is known
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
    """Shape (candidates, 2)."""
    return times[np.argsort(order, kind="stable")].reshape(-1, 2)
