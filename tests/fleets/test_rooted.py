"""Collectives with a root: some of their ranks go on before the last rank arrives."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from fleets.jobs import job, train_rooted

from unstall.fleets.fleet import explain_fleet
from unstall.fleets.join import join
from unstall.fleets.summarise import summarise
from unstall.fleets.summary import decode
from unstall.fleets.waiting import waiting


@pytest.mark.parametrize("name", ["broadcast", "_reduce_oop"])
def test_a_rank_that_went_on_before_the_last_one_came_goes_on_in_the_replay(tmp_path: Path, name: str) -> None:
    found = explain_fleet(job(partial(train_rooted, name=name), tmp_path, ranks=4), cache=False)
    assert abs(found.replayed_step_ns / found.step_ns - 1) < 0.01


@pytest.mark.parametrize("name", ["broadcast", "_reduce_oop"])
def test_a_rank_that_goes_on_moves_no_clock_if_there_are_no_other_collectives(tmp_path: Path, name: str) -> None:
    paths = job(partial(train_rooted, name=name, symmetric=False), tmp_path, ranks=4)
    found = explain_fleet(paths, cache=False)
    assert found.clocks.most_offset_ns == 0
    assert found.clocks.parts > 1
    assert any("share only collectives with a root" in note for note in found.notes)
    assert abs(found.replayed_step_ns / found.step_ns - 1) < 0.01


def test_ranks_that_wait_in_a_broadcast_end_together_and_tell_their_clocks(tmp_path: Path) -> None:
    train = partial(train_rooted, symmetric=False)
    paths = job(train, tmp_path, ranks=4, clock=lambda rank: (300.0 * rank, 0))
    ranks = [decode(summarise(path)) for path in paths]
    found = waiting(ranks, join(ranks))
    assert found.uneven == "collectives with a root"
    assert found.clocks.part[1] == found.clocks.part[2]
    assert found.clocks.offset[2] - found.clocks.offset[1] == pytest.approx(300_000, abs=5)
