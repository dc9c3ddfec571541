"""Which rank a trace is of: by what the file says, or else by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from traces import TraceBuilder

from unstall.fleets.identity import Identity, identify
from unstall.fleets.join import ranks_text
from unstall.fleets.summarise import ranks_in

TIMELINE = TraceBuilder().timeline()


@pytest.mark.parametrize(
    ("path", "rank", "machine"),
    [
        ("rank3.json", 3, None),
        ("rank-12.Apr_03_18_51_38.1102.pt.trace.json.gz", 12, None),
        ("train-rank0-2.trace.json.gz", 0, None),
        ("traces/worker_7/trace.json", 7, None),
        ("iteration_40/rank[5]_trace.json", 5, None),
        ("gpu-node-17_4321.1719391232123456789.pt.trace.json.gz", -1, "gpu-node-17"),
        ("trace_11.json", 11, None),
        ("trace.json", -1, None),
    ],
)
def test_names_tell_ranks_and_machines(path: str, rank: int, machine: str | None) -> None:
    found = identify(TIMELINE, Path(path))
    assert (found.rank, found.machine) == (rank, machine)
    assert found.by == ("nothing" if rank < 0 else "file name")


def test_what_the_trace_says_counts_more_than_its_name() -> None:
    timeline = TIMELINE.with_meta(rank=6)
    assert identify(timeline, Path("rank3.json")) == Identity(6, "distributedInfo", None)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("[0, 1, 2]", (0, 1, 2)),
        ("[4, 0]", (0, 4)),
        ("[0, 1, ..., 63]", ()),
        ("[-1]", ()),
        ("[True]", ()),
        ("[[0]]", ()),
        ("__import__('os')", ()),
        ("[" * 5000, ()),
        ("", ()),
        ("[0, \ud800]", ()),
        ("[131071]", (131_071,)),
        ("[131072]", ()),
        ("[0x10]", ()),  # Python's, not JSON
        ("[" + "0, " * (1 << 17) + "0]", ()),
    ],
)
def test_ranks_of_a_group_are_read_or_unknown(text: str, ranks: tuple[int, ...]) -> None:
    assert ranks_in(text) == ranks


def test_ranks_are_written_as_people_write_them() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"
    assert ranks_text(range(0, 40, 2)).endswith("14, …")
