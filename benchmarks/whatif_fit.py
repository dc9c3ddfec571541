"""Fits the recorder's usual cost to runs whose step times without the recorder are known.

The fit is a coordinate descent from a fixed start, whose steps halve in each round. It always gives
the same result, which is good to about a step of the last round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.what_if.undistort import USUAL, RecorderCost, undistort

START = RecorderCost(operator=2200, frame=250, call=1500, launch=2000, node=900, op=USUAL.op)
_STEPS_NS = {"operator": 500, "frame": 150, "call": 700, "launch": 600, "node": 200}
_ROUNDS = 2
_MOST = 0.4  # of a run's error that counts: one odd run does not decide
_MEDIAN_WEIGHT, _START_WEIGHT = 0.5, 0.003  # near the start where the runs do not say
_BETTER = 2e-4


@dataclass(frozen=True, eq=False)
class Known:
    """A run whose step time without the recorder is known.

    Attributes:
        name: The name of the run.
        family: The program of which it is a variant.
        program: The run as a program, without its pauses.
        plain_ns: The step time without the recorder, in ns.
    """

    name: str
    family: str
    program: Program
    plain_ns: float

    def error(self, cost: RecorderCost) -> float:
        """Returns how far off the step time is that is estimated with the given cost of the
        recorder: the logarithm of the estimated over the plain step time.
        """
        return float(np.log(steady_step_ns(undistort(self.program, 1.0, cost)) / self.plain_ns))


Errors: TypeAlias = Callable[[RecorderCost], np.ndarray]


def of(runs: Sequence[Known]) -> Errors:
    """Returns a function that returns the errors of all runs for a given cost of the recorder. The
    error of a run that no cost changes, such as one that the device bounds, is computed only once.
    """
    none, all_of_it = replace(USUAL, operator=0, frame=0, call=0, launch=0, node=0), replace(USUAL, operator=10_000)
    all_of_it = replace(all_of_it, frame=2_000, call=8_000, launch=8_000, node=3_000)
    fixed = np.array([run.error(none) for run in runs])
    varies = [i for i, run in enumerate(runs) if abs(run.error(all_of_it) - fixed[i]) > 1e-3]

    def errors(cost: RecorderCost) -> np.ndarray:
        found = fixed.copy()
        found[varies] = [runs[i].error(cost) for i in varies]
        return found

    return errors


def fit(errors: Errors) -> RecorderCost:
    """Returns the recorder's cost with which the estimated step times are nearest to the plain
    ones.
    """
    best, least = START, loss(START, errors)
    for number in range(_ROUNDS):
        for name, step in _STEPS_NS.items():
            for way in (1, -1):
                while True:
                    tried = _moved(best, name, round(way * step * 0.5**number))
                    if tried == best or (found := loss(tried, errors)) >= least - _BETTER:
                        break
                    best, least = tried, found
    return best


def loss(cost: RecorderCost, errors: Errors) -> float:
    size = np.minimum(np.abs(errors(cost)), _MOST)
    moved = sum(abs(np.log((getattr(cost, name) + 100) / (getattr(START, name) + 100))) for name in _STEPS_NS)
    return float(size.mean() + _MEDIAN_WEIGHT * np.median(size) + _START_WEIGHT * moved)


def cross_validated(runs: Sequence[Known]) -> dict[str, tuple[RecorderCost, list[tuple[str, float]]]]:
    """Returns, by family of programs, the recorder's cost that fits all other families, and the
    name and the relative error of each run of the family with that cost.
    """
    result = {}
    for family in dict.fromkeys(run.family for run in runs):
        mine = [run for run in runs if run.family == family]
        cost = fit(of([run for run in runs if run.family != family]))
        result[family] = cost, [(run.name, float(np.expm1(run.error(cost)))) for run in mine]
    return result


def _moved(cost: RecorderCost, name: str, by: int) -> RecorderCost:
    return replace(cost, **{name: max(0, getattr(cost, name) + by)})
