"""Sends and receives are joined by who sends to whom, also where a batch does both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from fleets.jobs import Arrival, RankTrace, job

from unstall.fleets.join import Joined, join
from unstall.fleets.summarise import summarise
from unstall.fleets.summary import decode

Batch = tuple[str, int, int]  # name, sender, receiver: of a batch of both the rank that sends to this one, and …


def joined(folder: Path, batches: Sequence[Sequence[Batch]]) -> Joined:
    """The operations of a job whose ranks have these sends and receives in each of two steps, in this order."""

    def train(rank: RankTrace) -> Iterator[Arrival]:
        for _ in range(2):
            with rank.step(), rank.frame("pipe.py", 5, "train"):
                for name, sender, receiver in batches[rank.rank]:
                    rank.kernels(2, 100)
                    arrival = rank.collective(name, range(rank.world), us=20, peer=(sender, receiver))
                    arrival.done(arrival.begin + 20_000)  # when it ends is of no interest here
                    rank.wait_for_comm()
        yield from ()

    return join([decode(summarise(path)) for path in job(train, folder, ranks=len(batches))])


def members(found: Joined) -> list[list[tuple[int, int]]]:
    """The members of each operation: the rank and the number of its call."""
    return [
        [(int(found.rank[at]), int(found.row[at])) for at in range(*found.first[number : number + 2])]
        for number in range(len(found))
    ]


def test_batches_that_exchange_with_each_other_are_one_operation(tmp_path: Path) -> None:
    # As in 1F1B: the first sends alone, the others go both ways, the last comes back alone.
    one = [("send", 0, 1), ("coalesced", 1, 1), ("recv", 1, 0)]
    other = [("recv", 0, 1), ("coalesced", 0, 0), ("send", 1, 0)]
    found = joined(tmp_path, [one, other, [("send", 2, 3)]])
    assert [{rank for rank, _ in each} for each in members(found)] == 6 * [{0, 1}]
    assert all(row == again for (_, row), (_, again) in members(found))
    assert found.notes == ()


def test_a_ring_is_one_operation_of_all_its_ranks(tmp_path: Path) -> None:
    ring = [[("coalesced", (rank - 1) % 4, (rank + 1) % 4)] * 3 for rank in range(4)]
    found = joined(tmp_path, ring)
    assert np.diff(found.first).tolist() == 6 * [4]


def test_a_batch_that_meets_two_calls_of_one_rank_is_left_as_recorded(tmp_path: Path) -> None:
    one = [("coalesced", 1, 1), ("send", 0, 1)]
    other = [("recv", 0, 1), ("send", 1, 0), ("recv", 0, 1)]
    found = joined(tmp_path, [one, other, [("send", 2, 3)]])
    assert [len(each) for each in members(found)] == [2, 2]  # the last send of each step, and its receive
    assert any("have an unknown peer" in note for note in found.notes)


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_message_whose_other_end_is_not_there_meets_nobody(tmp_path: Path, lacking: int) -> None:
    calls: list[list[Batch]] = [[("send", 0, 1)], [("recv", 0, 1)], [("send", 2, 3)]]
    calls[lacking] = [("send", lacking, 2)]
    found = joined(tmp_path, calls)
    assert len(found) == 0
    assert [note.partition(" operation")[0] for note in found.notes] == [f"rank {lacking} lacks 1", "rank 2 lacks 1"]
