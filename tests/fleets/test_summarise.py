"""What the summary of a rank counts, and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
from fleets.jobs import Arrival, RankTrace, job
from traces import TraceBuilder

from unstall.fleets.host_time import host_time
from unstall.fleets.summarise import KINDS, _Told, summarise
from unstall.fleets.summary import decode
from unstall.locate.collectives import Kind
from unstall.read import load
from unstall.timeline.columns import Timeline


def _runs_ahead(rank: RankTrace) -> Iterator[Arrival]:
    """A host that launches all steps long before the device runs them."""
    for _ in range(6):
        with rank.step(), rank.frame("train.py", 10, "train"):
            for _ in range(2):
                rank.kernels(2, 1_000)
                yield rank.collective("allreduce", range(2), us=500)
            rank.wait_for_comm()
            with rank.optimizer():
                rank.kernels(1, 50)


def test_a_collective_launched_before_the_recording_is_of_no_step(tmp_path: Path) -> None:
    path = job(_runs_ahead, tmp_path, ranks=2)[0]
    document = msgspec.json.decode(path.read_bytes())
    steps = sorted(e["ts"] for e in document["traceEvents"] if e["name"].startswith("ProfilerStep"))
    on_device = ("kernel", "gpu_memcpy", "gpu_memset")
    document["traceEvents"] = [
        e for e in document["traceEvents"] if e.get("cat") in on_device or e["ph"] != "X" or e["ts"] >= steps[2]
    ]
    path.write_bytes(msgspec.json.encode(document))
    rank = decode(summarise(path))
    assert rank.steps == 4
    assert rank.calls.step.tolist() == [-1] * 4 + [0, 0, 1, 1, 2, 2, 3, 3]
    assert rank.calls.started[3] > rank.calls.enqueued[4]  # it ran while the host was in a step
    assert (np.diff(rank.calls.enqueued) >= 0).all()


def _exchanges(rank: RankTrace) -> Iterator[Arrival]:
    for _ in range(2):
        with rank.step():
            yield rank.collective("all_to_allv", range(4), us=50)
            yield rank.collective("allreduce", range(4), us=50)


def test_the_annotation_names_a_collective_of_which_nothing_else_is_recorded(tmp_path: Path) -> None:
    path = job(_exchanges, tmp_path, ranks=4)[0]
    document = msgspec.json.decode(path.read_bytes())
    for event in document["traceEvents"]:
        name = event.get("args", {}).pop("Collective name", None)
        if name and event["name"] == "record_param_comms":
            event |= {"name": {"all_to_allv": "nccl:all_to_all"}.get(name, "nccl:all_reduce"), "cat": "user_annotation"}
    path.write_bytes(msgspec.json.encode(document))
    rank = decode(summarise(path))
    assert [KINDS[kind] for kind in rank.calls.kind.tolist()] == 2 * [Kind.ALL_TO_ALL, Kind.ALL_REDUCE]


def test_threads_that_take_turns_share_their_time() -> None:
    trace = TraceBuilder(stacks=True)
    with trace.frame("train.py", 1, "main"):
        trace.work(10)
        # Autograd's thread is within a frame all the time, as in virtual traces, and works for a part of it.
        with trace.on_thread(2, wait=False), trace.frame("train.py", 7, "backward"):
            trace.work(5)
            with trace.op("aten::mm"):
                trace.work(20)
            trace.work(500)
        trace.work(30)
        with trace.frame("train.py", 3, "load"):
            trace.work(100)
        trace.work(40)
    timeline = trace.timeline()
    host = timeline.host
    names = [timeline.text(name) for name in host.name]
    together = np.zeros(len(timeline.threads), dtype=np.int32)
    ((start, time, row),) = host_time(timeline, together)
    order = np.argsort(start)
    assert (start[order][1:] >= (start + time)[order][:-1]).all()
    assert time.sum() == host.end.max() - host.start.min()
    for name in ("train.py(3): load", "aten::mm"):
        number = names.index(name)
        assert time[row == number].sum() == host.end[number] - host.start[number] > 0
    # Threads of their own have all their time.
    apart = sum(each.sum() for _, each, _ in host_time(timeline, np.arange(len(timeline.threads), dtype=np.int32)))
    assert apart > time.sum() + 100_000


def test_a_group_is_looked_up_once_however_many_operations_it_has(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        with rank.step():
            for number in range(30):
                rank.kernels(1, 50)
                group = "second" if number % 3 else "first"
                yield rank.collective("allreduce", range(rank.world), us=20, group=group)

    timeline = load(job(train, tmp_path, ranks=2)[0])
    told = _Told(timeline)
    with patch.object(Timeline, "text", autospec=True, side_effect=Timeline.text) as asked:
        numbers = told.group(timeline.collectives.op.astype(np.int64))
    assert numbers.tolist() == [int(number % 3 > 0) for number in range(30)]
    assert [group.name for group in told.groups] == ["first", "second"]
    assert asked.call_count == 2 * 2  # the name and the members of each
