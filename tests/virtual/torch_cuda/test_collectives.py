"""Collectives: on the virtual GPU they give what they give on the CPU. Those of gloo take the time of its copies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import succeeded
from virtual.torch_cuda.running import HERE

pytestmark = pytest.mark.slow
Told = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[(1, "gloo"), (2, "gloo"), (1, "nccl"), (3, "nccl")])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """By rank, of one rank and of several."""
    meeting, (world, backend) = tmp_path_factory.mktemp("ranks") / "meeting", request.param
    program = [sys.executable, str(HERE / "prelude.py"), "1", "real", str(HERE / "programs" / "collectives.py")]
    ranks = [
        subprocess.Popen([*program, str(rank), str(world), str(meeting), backend], stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    printed = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world
    return [json.loads(each.splitlines()[-1]) for each in printed]


@pytest.mark.parametrize(
    "name",
    [
        "all_reduce",
        "all_reduce, largest",
        "all_reduce, mean",
        "all_reduce, waited for",
        "all_reduce, its future",
        "all_reduce, functional",
        "all_reduce, strided",
        "all_reduce, integers",
        "reduce",
        "reduce_scatter",
        "all_to_all",
        "gather",
        "scatter",
        "all_gather",
        "broadcast",
        "bfloat16",
        "parts of a tensor",
        "all_to_all, uneven",
        "objects",
        "messages",
        "groups",
    ],
)
def test_each_gives_on_the_gpu_what_it_gives_on_the_cpu(told: Told, name: str) -> None:
    for rank in told:
        here, on_the_gpu, there = rank[name]
        assert on_the_gpu
        assert here == there


def test_all_ranks_have_the_sum(told: Told) -> None:
    total = [sum(range(1, len(told) + 1)), 2 * len(told)]
    assert [rank["all_reduce"][0] for rank in told] == [[total]] * len(told)


@pytest.mark.parametrize("how", ["trained", "trained, gradients in buckets"])
def test_a_model_is_trained_to_the_cpu_s_parameters_with_its_gradients(told: Told, how: str) -> None:
    for rank in told:
        here, on_the_gpu, there = rank[how]
        assert on_the_gpu
        for mine, expected in zip(here, there, strict=True):  # of three ranks, gloo adds up in another order
            np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-8 if len(told) > 2 else 0)
    assert [rank[how][0] for rank in told] == [told[0][how][0]] * len(told)


@pytest.mark.parametrize("what", ["SyncBatchNorm", "SyncBatchNorm, channels last"])
def test_batches_of_all_ranks_are_normalized_as_one(told: Told, what: str) -> None:
    for rank in told:
        assert rank[what] < 1e-5


@pytest.mark.parametrize("told", [(1, "gloo"), (2, "gloo")], indirect=True)
def test_what_gloo_has_for_the_host_alone_it_refuses(told: Told) -> None:
    for rank in told:
        assert rank["all_reduce_coalesced"][:2] == ["raises", "RuntimeError"]
        assert "unsupported device type cuda" in rank["all_reduce_coalesced"][2]


@pytest.mark.parametrize("told", [(1, "gloo"), (2, "gloo")], indirect=True)
def test_the_stream_goes_on_after_the_copies_to_the_host_and_back(told: Told) -> None:
    for rank in told:
        assert rank["times"]["all_reduce"] > rank["times"]["copies"] > 0.2


@pytest.mark.parametrize("told", [(3, "nccl")], indirect=True)
def test_what_nccl_alone_has(told: Told) -> None:
    for rank in told:
        assert rank["all_reduce_coalesced"] == [[3.0], [3.0, 15.0]]
        assert rank["weighted"] == [3.0, 6.0]
        assert rank["barrier"] is None


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_under_torchrun_each_rank_has_a_gpu_and_is_explained(backend: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace("gloo", backend))
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "unstall", "run", "--gpu"]
    done = succeeded([sys.executable, "-m", *command, "h200:2", "train.py"], timeout=300, cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) == ["cuda:0 3.0", "cuda:1 3.0"]
    assert "rank 1: the trace is in train-rank1.trace.json.gz" in done.stderr
    assert "all of it: unstall explain train-rank0.trace.json.gz" in done.stderr
    assert "Race" not in done.stderr


TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False).to(device), [device])
for _ in range(4):
    model.zero_grad()
    model(torch.full((1, 1), 2.0 * device.index + 2, device=device)).sum().backward()
print(f"{device} {model.module.weight.grad.item()}\\n", end="", flush=True)  # both ranks write to one pipe
dist.destroy_process_group()
"""
