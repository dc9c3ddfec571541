"""How long a step of a job takes once it goes on as replayed, and what its ranks share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fleets.jobs import job, train_ddp

from unstall.fleets.executors import Processes
from unstall.fleets.gather import gather
from unstall.fleets.job import Times, from_first_step
from unstall.fleets.mapping import Task


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
