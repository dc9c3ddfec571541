"""The device has nothing to do while the host waits for the next batch."""

from __future__ import annotations

import pytest
from findings import found, only, place, result_of
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.frameworks import PREFETCH_WAIT

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


def test_its_gain_is_that_of_batches_that_are_ready() -> None:
    """A step of 5,021 µs then takes what a request, its launch and work take: 1,021."""
    findings = explain(training(5_000).timeline(), as_recorded=True).findings
    (finding,) = (each for each in findings if each.rule == "data-loading")
    assert finding.edit == "load-ahead:train.py:12"
    assert finding.gain_ns == pytest.approx(4_000_000, abs=10_000)
    assert "the gain is the most there is" in finding.fix


@pytest.mark.parametrize("batch_us", [800, 5_000])
def test_workers_are_advised_only_if_making_a_batch_takes_longer_than_fetching_it_from_one(batch_us: float) -> None:
    result = result_of(training(batch_us, loader="_SingleProcessDataLoaderIter"))
    (finding,) = (each for each in result.costly if each.rule == "data-loading")
    assert (finding.edit is None) == (batch_us < 1_000)
    assert ("Workers gain nothing" in finding.fix) == (batch_us < 1_000)
    assert ("num_workers=4" in finding.fix) == (batch_us > 1_000)


def test_nothing_is_said_of_the_work_of_a_dataset_that_took_no_time_in_a_simulated_run() -> None:
    run = training(800, loader="_SingleProcessDataLoaderIter").timeline().with_meta(recorder="virtual", free_work=True)
    (finding,) = (each for each in explain(run).findings if each.rule == "data-loading")
    assert "Workers gain nothing" not in finding.fix
    assert "--host mixed" in finding.fix


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


LOADER = 460


def fed_by_a_thread(
    loader: str = "_SingleProcessDataLoaderIter", *, staging_us: float = 400, kernels: bool = True
) -> TraceBuilder:
    """Batches are fetched, staged and copied on a thread of their own; the device runs dry for each."""
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.on_thread(LOADER):
                trace.next_batch(300, loader=loader)
                trace.work(staging_us)
                with trace.op("aten::copy_"):
                    trace.copy("HtoD", 5, size=1 << 16, memory="Pinned")
            if kernels:
                with trace.op("aten::mm"):
                    trace.launch("gemm", 300)
    return trace


def test_who_fetches_on_a_thread_already_is_not_told_to() -> None:
    alone, workers = (
        only(fed_by_a_thread(kind), "data-loading") for kind in ("_SingleProcessDataLoaderIter", "_Multi")
    )
    assert "a thread fetches ahead" in alone.saw
    assert "num_workers=4" in alone.fix
    assert "more workers" in workers.fix
    assert "prefetch(" not in alone.fix + workers.fix


def test_what_a_fetching_thread_does_to_a_batch_is_data_loading_too() -> None:
    """A batch takes 300 µs to fetch and 400 to stage, of which a kernel of 300 hides some in two of three steps."""
    trace = fed_by_a_thread()
    assert 500_000 <= only(trace, "data-loading").exposed_ns <= 530_000
    assert not found(trace, "launch-bound")
    assert result_of(trace).accounts.idle_ns.launch == 0


def test_a_program_that_only_copies_fetches_its_own_batches() -> None:
    assert "a thread" not in only(fed_by_a_thread(staging_us=50, kernels=False), "data-loading").saw


def waited_for_in_prefetch(batch_us: float, loader: str = "_SingleProcessDataLoaderIter") -> TraceBuilder:
    """Steps whose batches a thread of unstall.prefetch fetches and copies, while the program waits for it."""
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.on_thread(LOADER, wait=False):
                trace.next_batch(batch_us, loader=loader)
                with trace.op("aten::copy_"):
                    trace.copy("HtoD", 5, size=1 << 16, memory="Pinned", stream=20)
                copied = trace.record(stream=20)
            with (
                trace.frame("unstall/fix/batches/iteration.py", 270, "Iteration._taken"),
                trace.annotation(PREFETCH_WAIT),
            ):
                trace.work(batch_us + 30)
            trace.stream_wait(copied, stream=7)
            with trace.op("aten::mm"):
                trace.launch("gemm", 300)
    return trace


def test_a_wait_for_prefetchs_thread_is_one_for_data_at_the_programs_own_line() -> None:
    finding = only(waited_for_in_prefetch(5_000), "data-loading")
    assert place(finding) == ("train.py", 12, "train")
    assert "num_workers=0: a thread fetches ahead" in finding.saw
    assert "num_workers=4" in finding.fix
    assert result_of(waited_for_in_prefetch(5_000)).verdict.bound_by == "input"
    assert "more workers than now" in only(waited_for_in_prefetch(5_000, "_Multi"), "data-loading").fix


def test_what_a_faster_loader_gains_prefetchs_thread_gains_too() -> None:
    """A step of 5,060 µs then waits for 1,000 of fetching."""
    findings = explain(waited_for_in_prefetch(5_000).timeline(), as_recorded=True).findings
    (finding,) = (each for each in findings if each.rule == "data-loading")
    assert finding.edit == "load-ahead:train.py:12"
    assert finding.gain_ns == pytest.approx(4_000_000, rel=0.05)


def test_a_wait_that_no_ready_batch_would_shorten_is_still_worth_a_look() -> None:
    """Fetching takes about 1 ms, whoever does it, so nothing is promised; but the device idles for it."""
    finding = only(waited_for_in_prefetch(900), "data-loading")
    assert not finding.harmless
    assert finding.gain_ns is None


def fetched_by_prefetch(trace: TraceBuilder) -> TraceBuilder:
    """Steps whose batches the program's own thread fetches within unstall.prefetch."""
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.frame("unstall/fix/batches/iteration.py", 200, "__next__"):
                trace.next_batch(1_000, loader="_SingleProcessDataLoaderIter")
            with trace.op("aten::mm"):
                trace.launch("gemm", 300)
    return trace


def test_prefetch_that_stands_aside_is_not_advised_again() -> None:
    finding = only(fetched_by_prefetch(TraceBuilder()), "data-loading")
    assert "fetches no batch ahead: its stats() say why" in finding.saw
    assert "prefetch(" not in finding.fix


def test_prefetch_that_fetches_the_first_batches_of_an_epoch_and_then_ahead_is_not_said_to_fetch_none() -> None:
    findings = found(fetched_by_prefetch(fed_by_a_thread()), "data-loading")
    first = next(finding for finding in findings if "a thread fetches ahead" not in finding.saw)
    assert "fetches no batch ahead" not in first.saw
    assert "unstall.prefetch lets it make the first batches of each epoch" in first.saw
    assert "prefetch(" not in first.fix
