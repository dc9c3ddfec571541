"""The device has nothing to do while the host waits for the next batch."""

from __future__ import annotations

from findings import found, only, place, result_of
from traces import TraceBuilder

STEPS = 3


def training(batch_us: float, *, loader: str = "_MultiProcessingDataLoaderIter", stacks: bool = True) -> TraceBuilder:
    trace = TraceBuilder(stacks=stacks)
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.next_batch(batch_us, loader=loader)
            with trace.op("aten::mm"):
                trace.launch("gemm", 300)
    return trace


def test_the_idle_time_until_the_batch_is_there_is_found_at_the_line_that_asks() -> None:
    """Of a step's 1,021 µs its request takes 1,007. Its kernel runs 1,019-1,319: the device is idle from the start of
    the first step, at 1, until 1,019, and 721 in each of the others."""
    finding = only(training(1_000), "data-loading")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.wait_ns) == (STEPS, 1_007_000)
    assert finding.exposed_ns == (1_018_000 + 2 * 721_000) / STEPS


def test_an_annotation_alone_tells_where_neither_operators_nor_torchs_frames_are_recorded() -> None:
    trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "lines": "exact"})
    for number in range(STEPS):
        with trace.annotation(f"unstall.step#{number}"), trace.frame("train.py", 41, "train"):
            with trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                trace.work(1_000)
            trace.launch("gemm", 300)
    finding = only(trace, "data-loading")
    assert place(finding) == ("train.py", 41, "train")
    assert (finding.count, finding.confidence) == (STEPS, "high")
    assert result_of(trace).verdict.bound_by == "input"


def test_the_verdict_is_input() -> None:
    assert result_of(training(1_000)).verdict.bound_by == "input"


def test_a_loader_in_the_main_process_is_told_from_slow_workers() -> None:
    alone = only(training(1_000, loader="_SingleProcessDataLoaderIter"), "data-loading")
    workers = only(training(1_000), "data-loading")
    assert (alone.confidence, workers.confidence) == ("high", "medium")
    assert "num_workers=0" in alone.saw
    assert "num_workers=0" not in workers.saw


def test_without_stacks_the_annotation_tells_it() -> None:
    finding = only(training(1_000, stacks=False), "data-loading")
    assert (finding.count, finding.where.file) == (STEPS, None)


def test_a_loader_that_keeps_up_is_not_found() -> None:
    assert found(training(2), "data-loading") == []
