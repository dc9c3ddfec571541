"""Parts of a job whose clocks cannot be compared, because no collective connects them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from fleets.jobs import Arrival, RankTrace, job

from unstall.fleets.fleet import explain_fleet
from unstall.fleets.waiting import covered

_YEARS_NS = 1_700_000_000 * 10**9


def train_pairs(rank: RankTrace, *, slow: int | None = None, alone: int | None = None) -> Iterator[Arrival]:
    """Ranks that meet in pairs only, or all but the last one, which is alone. One rank may be slow."""
    pair = range(rank.rank // 2 * 2, rank.rank // 2 * 2 + 2)
    members = pair if alone is None else range(alone)
    for _ in range(5):
        with rank.step(), rank.frame("pairs.py", 3, "train"):
            rank.kernels(40 if rank.rank == slow else 20, 200)
            if rank.rank in members:
                yield rank.collective("allreduce", members, us=100, group=f"ranks {members}")
                rank.wait_for_comm()
            rank.item()


def test_a_straggler_is_found_in_a_part_whose_clock_is_years_behind(tmp_path: Path) -> None:
    paths = job(partial(train_pairs, slow=1), tmp_path, ranks=4)
    for path in paths[2:]:
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"baseTimeNanoseconds": _YEARS_NS}))
    found = explain_fleet(paths, cache=False)
    assert found.clocks.parts == 2
    assert found.step_ns == found.replayed_step_ns == 8_118_000
    assert [each.rank for each in found.stragglers] == [1]
    assert [row.waiting_ns for row in found.ranks] == [4_000_000, 0, 0, 0]


def test_a_rank_without_collectives_may_have_any_clock(tmp_path: Path) -> None:
    train = partial(train_pairs, alone=3)
    paths = job(train, tmp_path, ranks=4, clock=lambda rank: (1e7 * (rank == 3), 0))
    found = explain_fleet(paths, cache=False)
    assert found.step_ns == found.replayed_step_ns == 4_118_000


def test_spans_of_ranks_whose_clocks_are_years_apart_are_covered() -> None:
    rank, step = np.repeat(np.arange(8), 20), np.tile(np.arange(20), 8)
    start = 10**6 * step + _YEARS_NS * (rank % 2)
    start, end = np.tile(start, 2), np.concatenate((start + 300, start + 500))
    both = np.tile(rank, 2), np.tile(step, 2)
    assert (covered(start, end, *both, (8, 20)) == 500).all()
