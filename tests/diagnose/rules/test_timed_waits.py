"""Waits before the program reads a clock belong to a measurement, if the reads are known."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from fix.on_a_gpu import on_virtual_gpu
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.result import Finding, Result
from unstall.timeline.columns import ClockReads


def timing(*, waits: int = 10, work_us: float = 0) -> tuple[TraceBuilder, list[int]]:
    """Waits for a kernel, and a read of the clock after each. `work_us` is the length of an operator in between."""
    trace, reads = TraceBuilder(launch_us=5), []
    with trace.frame("train.py", 12, "train"):
        start = trace.now
        for _ in range(waits):
            trace.launch("gemm", 500)
            trace.sync("device")
            if work_us:
                with trace.op("aten::add"):
                    trace.work(work_us)
            trace.work(1)
            reads.append(trace.now - start)
            trace.work(20)
    return trace, reads


def waits_of(trace: TraceBuilder, reads: list[int], *, of_host: object = True) -> tuple[list[Finding], Result]:
    timeline = trace.timeline()
    times = np.array(reads, np.int64) + timeline.host.start.min()
    clocks = np.broadcast_to(np.array(of_host, np.bool_), times.shape)
    result = explain(replace(timeline, clock_reads=ClockReads(times, np.zeros(len(times), np.int32), clocks))).result
    return [finding for finding in result.findings if finding.rule.startswith("sync-")], result


def test_a_wait_before_a_read_of_the_clock_is_for_the_clock_and_not_in_the_plan() -> None:
    (finding,), result = waits_of(*timing())
    assert finding.rule == "sync-to-time"
    assert "and then train.py:12 reads a clock" in finding.saw
    assert (finding.count, finding.edit, finding.gain_ns) == (10, None, None)
    assert finding.wait_ns > 0
    assert finding.exposed_ns > 0
    assert not finding.harmless
    assert not result.plan
    assert result.waits is not None
    assert [line.rule for line in result.waits.lines] == [finding.rule]


@pytest.mark.parametrize("reads", [[], None], ids=["not known", "after other work"])
def test_other_waits_stay_what_they_are(reads: list[int] | None) -> None:
    trace, known = timing(work_us=0 if reads is not None else 20)
    (finding,), result = waits_of(trace, known if reads is None else reads)
    assert finding.rule == "sync-explicit"
    assert finding.edit is not None
    assert result.plan


@pytest.mark.parametrize(
    ("waits", "read", "rule"),
    [
        (1, 1, "sync-to-time"),
        (2, 1, "sync-explicit"),
        (10, 1, "sync-explicit"),
        (10, 5, "sync-explicit"),
        (10, 6, "sync-to-time"),
    ],
)
def test_a_line_has_the_rule_of_most_of_its_waits(waits: int, read: int, rule: str) -> None:
    trace, reads = timing(waits=waits)
    (finding,), result = waits_of(trace, reads[-read:])
    assert (finding.rule, finding.count) == (rule, waits)
    assert bool(result.plan) == (rule == "sync-explicit")
    said = "and then train.py:12 reads" if read == waits else f"and train.py:12 reads a clock after {read} of them"
    assert said in finding.saw


def test_a_wait_before_the_time_between_events_can_go_if_the_time_is_read_later() -> None:
    (finding,), result = waits_of(*timing(), of_host=False)
    assert (finding.rule, finding.count, finding.edit) == ("sync-to-time", 10, "remove-syncs:train.py:12")
    assert "and then train.py:12 reads the time between events" in finding.saw
    assert "keep each step's events, and call elapsed_time() after the loop" in finding.fix
    assert result.plan


def test_a_wait_before_reads_of_both_clocks_is_needed_for_the_hosts() -> None:
    trace, reads = timing()
    both = sorted([*reads, *(read + 1 for read in reads)])
    (finding,), result = waits_of(trace, both, of_host=[False, True] * len(reads))
    assert (finding.rule, finding.edit, result.plan) == ("sync-to-time", None, ())
    assert "reads a clock" in finding.saw


BENCHMARK = "/site-packages/torch/utils/benchmark/utils"


def benchmarked(*, by_the_program: bool) -> TraceBuilder:
    """Ten waits under torch's benchmark: those of its timer, or those of the statement that it times."""
    trace = TraceBuilder(launch_us=5)
    for _ in range(10):
        with ExitStack() as frames:
            frames.enter_context(trace.frame("train.py", 12, "train"))
            frames.enter_context(trace.frame(f"{BENCHMARK}/timer.py", 300, "timeit"))
            frames.enter_context(trace.frame("<timeit-src>", 1, "inner"))
            with trace.frame("train.py", 40, "step"):
                trace.launch("gemm", 500)
                if by_the_program:
                    synchronize(trace)
            if not by_the_program:
                frames.enter_context(trace.frame(f"{BENCHMARK}/timer.py", 17, "timer"))
                synchronize(trace)
        trace.work(20)
    return trace


def synchronize(trace: TraceBuilder) -> None:
    with (
        trace.frame("/site-packages/torch/accelerator/__init__.py", 200, "synchronize"),
        trace.named_frame("<built-in function _accelerator_synchronizeDevice>"),
    ):
        trace.sync("device")


def test_torchs_timer_waits_for_its_clock_though_no_read_is_known() -> None:
    result = explain(benchmarked(by_the_program=False).timeline()).result
    (finding,) = (finding for finding in result.findings if finding.rule.startswith("sync-"))
    assert (finding.rule, finding.count, finding.edit) == ("sync-to-time", 10, None)
    assert "so that torch.utils.benchmark can read a clock" in finding.saw


def test_what_torchs_timer_times_may_wait_needlessly() -> None:
    result = explain(benchmarked(by_the_program=True).timeline()).result
    (finding,) = (finding for finding in result.findings if finding.rule.startswith("sync-"))
    assert (finding.rule, finding.where.line) == ("sync-explicit", 40)
    assert finding.edit is not None


@pytest.mark.slow
def test_the_virtual_gpu_tells_both_kinds_apart(tmp_path: Path) -> None:
    program = """
import time
import torch
a = torch.ones(1000, 1000, device="cuda")
torch.cuda.synchronize()
start = time.perf_counter()
b = a @ a
torch.cuda.synchronize()
b.sum()
torch.cuda.synchronize()
print(time.perf_counter() - start)
for kind in torch.cuda.Event, torch.Event:
    first, last = (kind(enable_timing=True) for _ in range(2))
    first.record()
    b = a @ a
    last.record()
    last.synchronize()
    print(first.elapsed_time(last))
"""
    end = """
from unstall.diagnose.explain import explain
found = explain(gpu.timeline()).findings
print("WAITS", sorted((f.where.line, f.rule, bool(f.edit)) for f in found if f.rule.startswith("sync-")))
"""
    said = on_virtual_gpu(tmp_path, program, end)
    for_the_host = "(5, 'sync-to-time', False), (8, 'sync-explicit', True), (10, 'sync-to-time', False)"
    assert f"WAITS [{for_the_host}, (17, 'sync-to-time', True)]" in said
