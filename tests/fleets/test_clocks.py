"""Clocks are aligned by the ends of collectives."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fleets.jobs import job, train_ddp

from unstall.fleets.clocks import align
from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import FleetResult
from unstall.timeline.columns import I64

Observed = tuple[I64, I64, I64, tuple[np.ndarray, np.ndarray, int, float]]


def observed(
    seed: int,
    *,
    machines: int = 8,
    operations: int = 400,
    span_s: float = 4.0,
    late: float = 0.0,
    jitter_us: float = 10,
    drift_ppm: float = 20,
) -> Observed:
    """Operations of random groups whose ends jitter by 10 µs; clocks shifted by up to 500 µs and 20 ppm."""
    rng = np.random.default_rng(seed)
    offset, drift = rng.uniform(-500e3, 500e3, machines), rng.uniform(-drift_ppm, drift_ppm, machines) * 1e-6
    true = np.sort(rng.uniform(0, span_s * 1e9, operations))
    members = [np.sort(rng.choice(machines, rng.integers(2, machines + 1), replace=False)) for _ in true]
    operation = np.repeat(np.arange(operations), [len(each) for each in members])
    clock = np.concatenate(members)
    when = true[operation] + rng.normal(0, 1e3 * jitter_us, len(clock))
    when += (rng.random(len(clock)) < late) * rng.exponential(5e6, len(clock))
    local = when + offset[clock] + drift[clock] * when
    return operation, clock, np.rint(local).astype(np.int64), (offset, drift, machines, span_s * 1e9)


def worst_error(seed: int, late: float = 0.0, drift_ppm: float = 20) -> float:
    operation, clock, local, (offset, drift, machines, span) = observed(seed, late=late, drift_ppm=drift_ppm)
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


@pytest.mark.parametrize("operations", [2, 3, 6, 40])
def test_the_residual_of_few_operations_is_the_jitter_too(operations: int) -> None:
    found = []
    for seed in range(40):
        operation, clock, local, (_, _, machines, _) = observed(seed, machines=4, operations=operations, jitter_us=400)
        found.append(align(operation, clock, local, machines).residual_ns or 0.0)
    assert 180e3 < np.median(found) < 600e3


def test_a_single_operation_does_not_tell_how_well_the_clocks_agree() -> None:
    fitted = align(np.zeros(4, np.int64), np.arange(4), np.array([100, 230_000, 17, 400_000]), 4)
    assert fitted.residual_ns == np.inf
    assert not fitted.part.any()


@pytest.mark.parametrize("drift_ppm", [3_000, 10_000])
def test_clocks_that_drift_far_more_than_quartz_are_recovered_too(drift_ppm: float) -> None:
    assert max(worst_error(seed, drift_ppm=drift_ppm) for seed in range(10)) < 5e3


def test_a_job_whose_clocks_drift_by_3000_ppm_is_replayed_as_one_whose_clocks_agree(tmp_path: Path) -> None:
    found = []
    for drift in (0, 2e-3):
        (folder := tmp_path / str(drift)).mkdir()
        clocks = [(0.0, drift * (rank - 1.5)) for rank in range(4)]
        job(train_ddp, folder, ranks=4, end_jitter_us=3, clock=clocks.__getitem__)
        found.append(explain_fleet(folder, cache=False))
    one, other = found
    assert other.clocks.most_drift_ppm == pytest.approx(3_000, rel=0.02)
    assert other.clocks.residual_ns is not None
    assert other.clocks.residual_ns < 5_000
    assert other.replayed_step_ns == pytest.approx(one.replayed_step_ns, rel=0.005)


def test_a_straggler_is_named_if_a_single_collective_compares_the_clocks(tmp_path: Path) -> None:
    train = partial(train_ddp, steps=1, layers=1, slow=3, cause="clocks", kernels=80)
    found = explain_fleet(job(train, tmp_path, ranks=8, kernel_jitter=0.02, end_jitter_us=400), cache=False)
    assert found.clocks.residual_ns is None
    assert [each.rank for each in found.stragglers] == [3]
    assert any("too few collectives compare the clocks" in note for note in found.notes)


def on_localhost(folder: Path, offset_us: float, end_jitter_us: float) -> FleetResult:
    """Eight ranks whose files name the same machine, with clocks that differ by a step from rank to rank."""
    folder.mkdir()
    paths = job(train_ddp, folder, ranks=8, end_jitter_us=end_jitter_us, clock=lambda rank: (offset_us * rank, 0))
    for rank, path in enumerate(paths):
        path.rename(path.with_name(f"localhost_{100 + rank}.{1_700_000_000 + rank}.pt.trace.json"))
    return explain_fleet(folder, cache=False)


def test_ranks_on_machines_of_one_name_have_clocks_of_their_own(tmp_path: Path) -> None:
    found = on_localhost(tmp_path / "apart", 3_000, 3)
    assert (found.clocks.of, found.clocks.clocks) == ("rank", 8)
    assert found.clocks.most_offset_ns == pytest.approx(21_000_000, rel=0.05)
    assert max(row.waiting_ns for row in found.ranks) < 100_000
    assert any("the ranks on machine localhost have clocks that differ by up to 2" in note for note in found.notes)


@pytest.mark.parametrize("jitter_us", [0, 3, 100])
def test_ranks_of_one_machine_that_end_unevenly_share_a_clock(tmp_path: Path, jitter_us: float) -> None:
    found = on_localhost(tmp_path / "one", 0, jitter_us)
    assert (found.clocks.of, found.clocks.clocks) == ("machine", 1)


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
