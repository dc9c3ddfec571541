"""Jobs of several ranks over NCCL on virtual GPUs: their values are those of one process, and their times agree."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from processes import succeeded
from virtual.ranks.running import Rank, job

import unstall
from unstall.virtual.profiler.trace_file import write_trace

EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp_straggler.py"
SLEPT_NS = 200_000_000
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> list[Rank]:
    """Two ranks; rank 1 sleeps in its last backward pass."""
    return job("ddp", 2, tmp_path_factory.mktemp("ddp"), "1")


def all_reduces(rank: Rank) -> list[tuple[str, int, int]]:
    return rank.kernels("AllReduce_Sum_f32")


@pytest.mark.ci
def test_gradients_are_those_of_one_process_with_all_data(ddp: list[Rank]) -> None:
    assert [rank.told["off"] < 1e-6 for rank in ddp] == [True, True]


@pytest.mark.ci
def test_a_collective_ends_on_all_ranks_at_the_same_time(ddp: list[Rank]) -> None:
    ends = [[end for _, _, end in rank.kernels()] for rank in ddp]
    assert len(ends[0]) >= 8
    assert ends[0] == ends[1]


def test_the_others_wait_in_the_next_all_reduce_for_a_rank_that_sleeps(ddp: list[Rank]) -> None:
    waits, slept = (max(end - start for _, start, end in all_reduces(rank)) for rank in ddp)
    assert waits - slept == pytest.approx(SLEPT_NS, rel=0.001)
    assert slept < 20_000


def test_the_report_of_the_rank_that_waits_has_the_wait_in_collectives(ddp: list[Rank]) -> None:
    waits, slept = (unstall.explain(rank.timeline).result.accounts for rank in ddp)
    assert waits.comm_ns - slept.comm_ns == pytest.approx(SLEPT_NS, rel=0.001)
    assert waits.busy_ns.comm > SLEPT_NS


def test_a_trace_tells_what_the_timeline_does(ddp: list[Rank], tmp_path: Path) -> None:
    timeline = ddp[0].timeline
    write_trace(timeline, tmp_path / "trace.json")
    read = unstall.load(tmp_path / "trace.json")
    for name in ("sent", "received", "ranks", "sequence"):
        assert getattr(read.collectives, name).tolist() == getattr(timeline.collectives, name).tolist()
    assert [read.strings[text] for text in read.collectives.name] == [
        timeline.strings[text] for text in timeline.collectives.name
    ]
    assert (read.meta.rank, read.meta.groups) == (0, (("default_pg", (0, 1)),))


def test_the_timeline_tells_each_collective_s_group_and_number(ddp: list[Rank]) -> None:
    timeline = ddp[1].timeline
    told = timeline.collectives
    assert told.sequence.tolist() == list(range(1, len(told) + 1))
    assert {timeline.strings[members] for members in told.members} == {"[0, 1]"}
    assert (timeline.meta.rank, timeline.meta.world_size, timeline.meta.groups) == (1, 2, (("default_pg", (0, 1)),))
    named = [timeline.strings[name] for name in told.name.tolist()]
    assert named[-1] == "allreduce"
    assert told.sent.tolist()[-1] == told.received.tolist()[-1] == 4 * (16 * 32 + 32 + 32 * 4 + 4)


def test_each_kernel_has_the_call_that_launched_it(ddp: list[Rank]) -> None:
    timeline = ddp[0].timeline
    launches = timeline.device.launch[timeline.collectives.op]
    assert (launches >= 0).all()
    operators = {timeline.strings[timeline.host.name[timeline.host.op[row]]] for row in launches.tolist()}
    assert operators == {"record_param_comms"}
    assert (timeline.host.end[launches] <= timeline.device.start[timeline.collectives.op]).all()


def assert_same(one: list[Rank], other: list[Rank]) -> None:
    for mine, its in zip(one, other, strict=True):
        for table, column in (("device", "start"), ("device", "end"), ("host", "start"), ("host", "end")):
            first, second = (getattr(getattr(rank.timeline, table), column).tolist() for rank in (mine, its))
            assert first == second
        assert mine.timeline.strings == its.timeline.strings


def test_the_same_job_takes_the_same_time_to_the_nanosecond(ddp: list[Rank], tmp_path: Path) -> None:
    assert_same(ddp, job("ddp", 2, tmp_path, "1"))


@slow
@pytest.mark.parametrize("program", ["mesh", "pipeline"])
def test_jobs_of_four_take_the_same_time_to_the_nanosecond(program: str, tmp_path: Path) -> None:
    assert_same(*(job(program, 4, tmp_path / again) for again in ("once", "twice")))


@slow
def test_groups_of_a_mesh_are_split_off_the_job_s(tmp_path: Path) -> None:
    ranks = job("mesh", 4, tmp_path)
    assert [rank.told["off"] < 1e-5 for rank in ranks] == [True] * 4
    meta = ranks[3].timeline.meta
    assert (meta.rank, meta.world_size) == (3, 4)
    assert {(1, 3), (2, 3)} <= {members for _, members in meta.groups}


@slow
def test_the_others_wait_for_the_straggler_of_the_example(tmp_path: Path) -> None:
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "4", "-m", "unstall", "run", "--gpu"]
    succeeded([sys.executable, "-m", *command, "h200:4", str(EXAMPLE)], timeout=300, cwd=tmp_path)
    accounts = [
        unstall.explain(tmp_path / f"ddp_straggler-rank{rank}.trace.json.gz").result.accounts for rank in range(4)
    ]
    shares = [account.comm_ns / account.wall_ns for account in accounts]
    assert shares[2] < 0.1 < 0.5 < min(shares[:2] + shares[3:])


@slow
@pytest.mark.parametrize("program", ["fsdp", "tensor_parallel"])
def test_values_are_those_of_one_process(program: str, tmp_path: Path) -> None:
    for rank in job(program, 2, tmp_path):
        assert rank.told["off"] < 1e-5
        assert len(rank.kernels()) > 2


@slow
def test_a_pipeline_of_four_gives_the_gradients_of_one_process(tmp_path: Path) -> None:
    ranks = job("pipeline", 4, tmp_path)
    assert [rank.told["off"] < 1e-5 for rank in ranks] == [True] * 4
    assert "loss" in ranks[3].told
    messages = [rank.kernels("SendRecv") for rank in ranks]
    assert all(messages)
    # A batch of a send and a receive tells both of its peers: of 1F1B's the same one.
    told = ranks[1].timeline.collectives
    batched = np.array([ranks[1].timeline.strings[name] == "coalesced" for name in told.name.tolist()])
    assert set(zip(told.source[batched].tolist(), told.target[batched].tolist(), strict=True)) == {(0, 0), (2, 2)}
    # The first stage waits longest for what comes back, the last one for what comes first.
    assert max(end - start for _, start, end in messages[0]) > 10_000
