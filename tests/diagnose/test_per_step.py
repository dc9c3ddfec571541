"""How often a step waits, launches, and how much memory is reserved: counted by hand, and on real runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from recordings import recording
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.read import load
from unstall.result import LineCount, Result, StepCount
from unstall.timeline.columns import Timeline


def _of(trace: TraceBuilder) -> Result:
    return explain(trace.timeline()).result


def _waits(trace: TraceBuilder) -> StepCount:
    waits = _of(trace).waits
    assert waits is not None
    return waits


def test_the_step_with_the_most_counts_not_the_mean() -> None:
    trace = TraceBuilder()
    for number in range(10):
        with trace.step(), trace.frame("train.py", 3, "train"):
            trace.launch()
            if number == 6:
                trace.item()
    waits = _waits(trace)
    assert (waits.most, waits.step, waits.count) == (1, 7, 1)
    assert [(line.most, line.count, line.steps_seen) for line in waits.lines] == [(1, 1, 1)]


def test_an_item_is_one_wait_though_it_copies_and_synchronises() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"):
            trace.launch()
            with trace.op("aten::item"), trace.op("aten::_local_scalar_dense"):
                trace.copy("DtoH", 1, memory="Pageable", size=4)
                trace.sync()
    waits = _waits(trace)
    assert (waits.most, waits.count) == (1, 3)
    assert waits.lines[0].where.op == "aten::item"
    assert "read them together every N steps" in waits.lines[0].fix


def test_each_call_of_synchronize_is_a_wait() -> None:
    trace = TraceBuilder()
    for _ in range(2):
        with trace.step(), trace.frame("train.py", 3, "train"):
            trace.launch()
            trace.sync("device")
            trace.sync("device")
            trace.event_sync(trace.record())
    assert _waits(trace).most == 3


def test_a_blocking_upload_is_one_wait_with_the_advice_of_its_finding() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"):
            with trace.op("aten::to"):
                trace.copy("HtoD", 900, memory="Pageable")
                trace.sync()
            trace.launch()
    (line,) = _waits(trace).lines
    assert (line.most, line.count) == (1, 3)
    assert line.fix.startswith("pin the source")


def test_a_pinned_asynchronous_upload_is_none() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"), trace.op("aten::to"):
            trace.copy("HtoD", 900, memory="Pinned")
    assert _waits(trace) == StepCount(most=0, step=0, count=0)


def test_memory_given_back_by_one_call_is_one_wait() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"):
            trace.launch()
            for _ in range(4):
                trace.free()
    assert _waits(trace).most == 1


def test_an_operator_that_asks_for_memory_and_waits_counts_once() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"), trace.op("aten::to"):
            trace.call("cudaMalloc", 90)
            trace.copy("HtoD", 900, memory="Pageable")
    assert _waits(trace).most == 1


def test_the_cache_may_grow_once() -> None:
    trace = TraceBuilder()
    for number in range(4):
        with trace.step(), trace.frame("train.py", 3, "train"), trace.op("aten::empty"):
            if not number:
                trace.call("cudaMalloc", 90)
            trace.launch()
    assert _waits(trace).most == 0


def test_launches_are_calls_of_every_kind() -> None:
    trace = TraceBuilder()
    for number in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"):
            trace.graph([5, 5, 5])
            trace.memset()
            trace.copy("DtoD", 3)
            for _ in range(number):
                trace.launch()
    launches = _of(trace).launches
    assert launches is not None
    assert (launches.most, launches.step, launches.count) == (5, 3, 12)


def test_without_device_work_nothing_is_counted() -> None:
    trace = TraceBuilder()
    with trace.step(), trace.op("aten::add"):
        trace.work(10)
    result = _of(trace)
    assert (result.waits, result.launches, result.reserved) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("gpt2_decode_item", 8),
        ("gpt2_decode_noitem.nostack", 0),
        ("resnet50_pageable", 1),
        ("resnet50_pinned", 0),
        ("resnet50_pinned_item", 1),
        ("resnet50_pinned_item_nan", 2),
        ("resnet50_pageable_item_nan", 3),
        ("empty_cache", 4),
    ],
)
def test_real_runs_wait_as_often_as_their_programs_say(name: str, most: int) -> None:
    waits = explain(recording(name)).result.waits
    assert waits is not None
    assert waits.most == most


def _sum(lines: tuple[LineCount, ...]) -> int:
    return sum(line.count for line in lines)


def test_lines_add_up() -> None:
    result = explain(recording("waits")).result
    assert result.waits is not None
    assert result.launches is not None
    assert _sum(result.waits.lines) == result.waits.count == 96
    assert _sum(result.launches.lines) == result.launches.count


def _allocates(*changes: tuple[int, int]) -> Timeline:
    """Steps in each of which a line makes allocations, as (bytes, bytes reserved after it)."""
    trace = TraceBuilder()
    times = []
    for _ in range(2):
        with trace.step(), trace.frame("train.py", 3, "train"), trace.op("aten::empty"):
            times += [trace.now + 100 * number for number in range(len(changes))]
            trace.launch()
    document = trace.document()
    document["traceEvents"] += [
        {
            "ph": "i",
            "name": "[memory]",
            "pid": 400,
            "tid": 400,
            "s": "t",
            "ts": msgspec.Raw(b"%d.%03d" % divmod(time, 1000)),
            "args": {"Device Type": 1, "Device Id": 0, "Bytes": size, "Total Allocated": 0, "Total Reserved": reserved},
        }
        for time, (size, reserved) in zip(times, changes * 2, strict=True)
    ]
    return _loaded(document)


def _loaded(document: dict[str, object]) -> Timeline:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.json"
        path.write_bytes(msgspec.json.encode(document))
        return load(path)


def test_reserved_memory_is_the_peak_and_a_line_tells_what_it_allocates_in_a_step() -> None:
    reserved = explain(_allocates((1024, 4096), (-1024, 4096), (512, 8192), (-512, 2048))).result.reserved
    assert reserved is not None
    assert reserved.bytes == 8192
    assert [(line.where.file, line.bytes) for line in reserved.lines] == [("train.py", 1536)]


def test_the_peak_that_the_recorder_was_told_counts_if_it_is_higher() -> None:
    for told, bytes_ in ((100, 4096), (10_000, 10_000)):
        timeline = _allocates((1024, 4096))
        timeline = timeline.with_meta(reserved_peak_bytes=told)
        reserved = explain(timeline).result.reserved
        assert reserved is not None
        assert reserved.bytes == bytes_


def test_a_recording_tells_the_peak_of_the_allocator() -> None:
    counters = {"reserved_bytes.all.peak": 2_097_152, "allocated_bytes.all.peak": 5}
    trace = TraceBuilder(unstall={"recorder": "cupti", "memory": {"before": {}, "after": counters}})
    with trace.step():
        trace.launch()
    assert trace.timeline().meta.reserved_peak_bytes == 2_097_152
    assert _of(trace).reserved == msgspec.convert({"bytes": 2_097_152}, type(_of(trace).reserved))


@pytest.mark.parametrize("told", [-5, 2**62, 1.5, "1", None])
def test_a_peak_that_makes_no_sense_is_not_known(told: object) -> None:
    trace = TraceBuilder(unstall={"memory": {"after": {"reserved_bytes.all.peak": told}}})
    with trace.step():
        trace.launch()
    assert _of(trace).reserved is None


def test_a_peak_before_the_part_that_is_cut_out_is_remembered(tmp_path: Path) -> None:
    from unstall.virtual.profiler.trace_file import write_trace
    from unstall.virtual.timeline.window import FOREVER, cut

    timeline = _allocates((1024, 4096), (512, 8192))
    reserved = timeline.memory.reserved.copy()
    reserved[len(reserved) // 2 :] = 2048
    timeline = replace(timeline, memory=replace(timeline.memory, reserved=reserved))
    later = cut(timeline, int(np.median(timeline.memory.time)), FOREVER)
    assert int(later.memory.reserved.max()) == 2048
    assert later.meta.reserved_peak_bytes == 8192
    write_trace(later, tmp_path / "part.json")
    assert json.loads((tmp_path / "part.json").read_text())["unstall"]["memory"]["after"] == {
        "reserved_bytes.all.peak": 8192
    }
    assert load(tmp_path / "part.json").meta.reserved_peak_bytes == 8192
