"""Least squares along a spanning forest has the solution of the dense equations, also for long chains."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.fleets.clocks import align
from unstall.fleets.spanning import Ends, Forest, solve

_REPEATS = 6


def ends_of(members: list[list[int]], clocks: int) -> Ends:
    """Operations of these clocks, each several times."""
    each = members * _REPEATS
    operation = np.repeat(np.arange(len(each)), [len(one) for one in each])
    return Ends(operation, np.concatenate([np.array(one) for one in each]), clocks)


def random_groups(clocks: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [sorted(rng.choice(clocks, rng.integers(2, 6), replace=False).tolist()) for _ in range(clocks)]


def chain(clocks: int) -> list[list[int]]:
    return [[each, each + 1] for each in range(clocks - 1)]


def grid(side: int) -> list[list[int]]:
    rows = [[side * row + column for column in range(side)] for row in range(side)]
    return rows + [[row[column] for row in rows] for column in range(side)]


GRAPHS = {
    "chain": (chain(40), 40),
    "ring": ([*chain(40), [0, 39]], 40),
    "pairs": ([[2 * each, 2 * each + 1] for each in range(20)], 40),
    "all": ([list(range(40))], 40),
    "grid": (grid(6), 36),
    "windows": ([list(range(each, each + 4)) for each in range(37)], 40),
    "machines": ([[0, 0, 1, 1], [1, 1, 2, 2], [0, 2, 3]], 4),
    "one of them alone": (chain(10), 11),
    **{f"random {seed}": (random_groups(30, seed), 30) for seed in range(5)},
}


def dense(
    ends: Ends, part: np.ndarray, u: np.ndarray, y: np.ndarray, weight: np.ndarray, ridge: np.ndarray
) -> np.ndarray:
    rows, count = np.arange(len(y)), ends.clocks
    design = np.zeros((len(y), ends.operations + 2 * count))
    design[rows, ends.operation] = 1
    design[rows, ends.operations + ends.clock] = 1
    design[rows, ends.operations + count + ends.clock] = u
    prior = np.zeros((count, design.shape[1]))
    prior[np.arange(count), ends.operations + count + np.arange(count)] = np.sqrt(ridge)
    root = np.sqrt(weight)
    whole = np.concatenate((design * root[:, None], prior))
    found: np.ndarray = np.linalg.lstsq(whole, np.concatenate((y * root, np.zeros(count))), rcond=None)[0]
    found = found[ends.operations :].reshape(2, count)
    for each in np.unique(part):
        found[:, part == each] -= found[:, part == each].mean(axis=1, keepdims=True)
    return found


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("ridge", [1e-3, 10.0])
def test_the_solution_is_that_of_the_dense_equations(name: str, ridge: float) -> None:
    members, clocks = GRAPHS[name]
    ends = ends_of(members, clocks)
    rng = np.random.default_rng(len(name))
    u = ends.operation / ends.operations - 0.5
    y = rng.normal(0, 1e5, clocks)[ends.clock] + rng.normal(0, 1e4, clocks)[ends.clock] * u
    y += rng.normal(0, 1e3, len(u)) + 1e9 * u
    weight = np.where(rng.random(len(u)) < 0.1, 0, rng.uniform(0.1, 1, len(u)))
    forest = Forest.of(ends)
    ridges = ridge * rng.uniform(0.5, 2, clocks)
    found = solve(ends, forest, u, y, weight, ridges)
    assert np.abs(found - dense(ends, forest.part, u, y, weight, ridges)).max() < 0.01  # of 1e5


@pytest.mark.parametrize("name", GRAPHS)
def test_the_forest_connects_what_operations_connect(name: str) -> None:
    members, clocks = GRAPHS[name]
    forest = Forest.of(ends_of(members, clocks))
    part = np.arange(clocks)
    for _ in range(clocks):
        for each in members:
            part[each] = part[each].min()
    assert len(np.unique(np.stack((part, forest.part)), axis=1).T) == len(np.unique(part)) == forest.part.max() + 1
    assert sorted(np.concatenate(forest.levels).tolist()) == list(range(clocks))


@pytest.mark.parametrize("name", ["chain", "pairs"])
def test_the_work_grows_with_the_number_of_clocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Conjugate gradients alone take as many iterations as a chain has clocks.
    calls: list[int] = []
    sums = Ends.of_clocks

    def counted(ends: Ends, values: np.ndarray) -> np.ndarray:
        calls.append(1)
        return sums(ends, values)

    monkeypatch.setattr(Ends, "of_clocks", counted)
    made = []
    for clocks in (100, 400):
        ends = ends_of(chain(clocks) if name == "chain" else [[at, at + 1] for at in range(0, clocks, 2)], clocks)
        rng = np.random.default_rng(1)
        time = ends.operation * 10**6 + rng.integers(-(10**6), 10**6, clocks)[ends.clock]
        calls.clear()
        align(ends.operation, ends.clock, time + rng.integers(-9999, 9999, len(time)), clocks)
        made.append(len(calls))
    assert made[1] < 1.5 * made[0]
