"""Clocks are aligned by the ends of collectives."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.fleets.clocks import align
from unstall.timeline.columns import I64

Observed = tuple[I64, I64, I64, tuple[np.ndarray, np.ndarray, int, float]]


def observed(
    seed: int, *, machines: int = 8, operations: int = 400, span_s: float = 4.0, late: float = 0.0
) -> Observed:
    """Operations of random groups whose ends jitter by 10 µs; clocks shifted by up to 500 µs and 20 ppm."""
    rng = np.random.default_rng(seed)
    offset, drift = rng.uniform(-500e3, 500e3, machines), rng.uniform(-20e-6, 20e-6, machines)
    true = np.sort(rng.uniform(0, span_s * 1e9, operations))
    members = [np.sort(rng.choice(machines, rng.integers(2, machines + 1), replace=False)) for _ in true]
    operation = np.repeat(np.arange(operations), [len(each) for each in members])
    clock = np.concatenate(members)
    when = true[operation] + rng.normal(0, 10e3, len(clock))
    when += (rng.random(len(clock)) < late) * rng.exponential(5e6, len(clock))
    local = when + offset[clock] + drift[clock] * when
    return operation, clock, np.rint(local).astype(np.int64), (offset, drift, machines, span_s * 1e9)


def worst_error(seed: int, late: float = 0.0) -> float:
    operation, clock, local, (offset, drift, machines, span) = observed(seed, late=late)
    fitted = align(operation, clock, local, machines)
    errors = []
    for true in np.linspace(0, span, 5):
        at = np.rint(true + offset + drift * true).astype(np.int64)
        off = fitted.aligned(np.arange(machines), at) - true
        errors.append(np.abs(off - np.median(off)).max())
    return float(max(errors))


def test_shifted_and_drifting_clocks_are_recovered_to_5_us_in_100_cases() -> None:
    assert max(worst_error(seed) for seed in range(100)) < 5e3


def test_operations_that_end_late_on_one_rank_move_no_clock() -> None:
    assert max(worst_error(seed, late=0.03) for seed in range(10)) < 5e3


def test_the_residual_is_the_jitter() -> None:
    operation, clock, local, (_, _, machines, _) = observed(1)
    fitted = align(operation, clock, local, machines)
    assert fitted.residual_ns == pytest.approx(10e3, rel=0.1)


def test_clocks_that_share_no_operation_are_in_different_parts() -> None:
    operation = np.repeat(np.arange(40), 2)
    clock = np.where(operation < 20, 0, 2) + np.tile([0, 1], 40)
    fitted = align(operation, clock, np.repeat(np.arange(40) * 10**6, 2) + clock * 5000, 4)
    assert fitted.part.tolist() == [0, 0, 1, 1]


def test_clocks_that_are_hours_apart_are_aligned() -> None:
    operation = np.repeat(np.arange(50), 2)
    clock = np.tile([0, 1], 50)
    local = operation * 10**7 + clock * 7200 * 10**9
    fitted = align(operation, clock, local, 2)
    both = fitted.aligned(clock, local).reshape(-1, 2)
    assert np.abs(both[:, 0] - both[:, 1]).max() < 100
