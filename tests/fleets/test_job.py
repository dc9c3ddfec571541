"""How long a step of a job takes once it goes on as replayed, and what its ranks share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fleets.jobs import Arrival, RankTrace, job, train_ddp

from unstall.fleets.executors import Processes
from unstall.fleets.gather import gather
from unstall.fleets.idle_host import idle_of
from unstall.fleets.job import Shapes, Times, from_first_step
from unstall.fleets.mapping import Task
from unstall.fleets.summarise import summarise
from unstall.fleets.summary import Rank, decode


def times(ends: list[list[int]], host_work: list[float]) -> Times:
    return Times(np.array(ends), np.zeros_like(ends), np.array(host_work), uncoupled=0)


def test_a_device_that_catches_up_goes_on_at_the_pace_of_its_host() -> None:
    # The device ends the first step late, and has caught up in the last.
    made = times([[300, 350, 420, 520]], [100])
    assert made.window_ns == pytest.approx(220 / 3)
    assert made.step_ns == 100


def test_a_device_that_is_still_late_goes_on_at_the_pace_of_its_host_too() -> None:
    assert times([[1000, 1020, 1040, 1060]], [100]).step_ns == 100


def test_a_host_that_is_far_ahead_does_not_matter() -> None:
    made = times([[300, 400, 500, 600], [300, 400, 500, 600]], [1, 80])
    assert made.step_ns == made.window_ns == 100


def test_a_single_step_counts_as_it_is() -> None:
    assert times([[70]], [60]).step_ns == 70


def test_many_ranks_take_no_room_for_what_they_have_in_common(tmp_path: Path) -> None:
    paths = job(train_ddp, tmp_path, ranks=2)
    one, other = gather([Task(path=str(path), cache=False) for path in paths], Processes()).ranks
    assert one.summary.places == other.summary.places != ()
    assert all(mine is theirs for mine, theirs in zip(one.summary.places, other.summary.places, strict=True))
    assert from_first_step(one.program) is one.program


def train_and_save(rank: RankTrace) -> Iterator[Arrival]:
    """The last of 20 steps calls 40 collectives, and rank 1 then calls one more with no other rank."""
    for step in range(20):
        with rank.step(), rank.frame("train.py", 11, "save"):
            for _ in range(40 if step == 19 else 1):
                rank.kernels(1, 50)
                yield rank.collective("allreduce", range(rank.world), us=20)
            if step == 19 and rank.rank == 1:
                yield rank.collective("allreduce", [1], us=20, group="own")
            rank.item()


@pytest.fixture
def saving(tmp_path: Path) -> list[Rank]:
    return [decode(summarise(path)) for path in job(train_and_save, tmp_path, ranks=2)]


def test_each_step_has_as_many_stretches_as_its_own_collectives_need(saving: list[Rank]) -> None:
    shapes = Shapes(saving, 20)
    assert shapes.stretches.counts.tolist() == [2] * 19 + [42]  # not 20 times 42
    for rank, buckets, (place, op) in zip(saving, shapes.buckets, shapes.positions, strict=True):
        assert len(buckets.host) == len(buckets.device) == len(op) == 2 * 19 + 42
        assert (op[place[rank.calls.op]] == rank.calls.op).all()
        device = np.add.reduceat(buckets.device, shapes.stretches.first[:-1])
        assert device.tolist() == [51_000] * 19 + [40 * 50_000 + 1_000]
        steps = shapes.stretches.step_of(buckets.of_row)
        assert (steps == rank.program.step_of(np.arange(len(steps)))).all()
    assert idle_of(saving, 20, shapes.stretches).buckets == 2 * 19 + 42
    assert idle_of(saving, 19, shapes.stretches).buckets == 2 * 19
