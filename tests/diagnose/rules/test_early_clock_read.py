"""Readings of a clock that end before the device's work does, if the reads are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fix.on_a_gpu import on_virtual_gpu
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.result import Finding
from unstall.timeline.columns import ClockReads


def read_at(trace: TraceBuilder, times: Sequence[int], *, of_host: bool = True) -> list[Finding]:
    """The findings of a trace whose first line reads the host's clock, or a device's, at these times."""
    timeline = trace.timeline()
    start = int(timeline.host.start.min())
    clocks = np.full(len(times), of_host)
    reads = ClockReads(np.array(times, np.int64) + start, np.zeros(len(times), np.int32), clocks)
    found = explain(replace(timeline, clock_reads=reads)).result.findings
    return [finding for finding in found if finding.rule == "early-clock-read"]


def launching(*, kernels: int = 10, wait: bool = False, queue: int = 1022) -> tuple[TraceBuilder, int]:
    """Kernels of a ms, and the time after the last launch, or the wait for them."""
    trace = TraceBuilder(launch_us=5, queue=queue)
    with trace.frame("train.py", 12, "train"):
        start = trace.now
        for _ in range(kernels):
            trace.launch("gemm", 1_000)
        if wait:
            trace.sync("device")
        read = trace.now - start
        trace.work(5)
        trace.sync("device")
    return trace, read


def test_a_reading_after_launches_leaves_the_devices_work_out() -> None:
    trace, read = launching()
    (finding,) = read_at(trace, [0, read])
    assert (finding.where.file, finding.where.line, finding.where.function) == ("train.py", 12, "train")
    assert finding.harmless
    assert finding.explains
    assert (finding.exposed_ns, finding.wait_ns, finding.gain_ns) == (0, 0, None)
    assert "1 reading of 50.0 µs" in finding.saw
    assert "What was launched in between took 10.0 ms" in finding.saw
    assert "torch.cuda.synchronize() before each reading" in finding.fix


def test_the_time_between_events_leaves_nothing_out() -> None:
    trace, read = launching()
    assert read_at(trace, [0, read], of_host=False) == []


def test_a_reading_after_a_wait_is_right() -> None:
    trace, read = launching(wait=True)
    assert read_at(trace, [0, read]) == []


def test_a_reading_of_launches_that_wait_for_a_full_queue_is_as_long_as_the_work() -> None:
    trace, _ = launching(kernels=40, queue=5)
    assert read_at(trace, [6_000_000, 16_000_000, 26_000_000]) == []


def test_readings_with_no_launch_in_between_are_none() -> None:
    trace, read = launching()
    assert read_at(trace, [read + 1, read + 2, read + 3]) == []


def test_the_work_before_the_first_reading_is_not_its() -> None:
    """10 kernels are queued before the first read, 1 after it: it takes a ms once the others are done."""
    trace, read = launching(kernels=11)
    (finding,) = read_at(trace, [read - 4_000, read])
    assert "took 1.00 ms" in finding.saw


def test_reads_that_are_not_known_make_no_claim() -> None:
    assert read_at(launching()[0], []) == []


@pytest.mark.slow
def test_the_virtual_gpu_knows_which_line_of_the_program_reads_the_clock(tmp_path: Path) -> None:
    program = """
import time, timeit
import torch
start = time.perf_counter()
a = torch.ones(1000, 1000, device="cuda")
print(time.time() - start)
timeit.timeit(lambda: a @ a, number=3)
"""
    end = (
        f"path = {str(tmp_path / 'trace.json')!r}"
        + """
from unstall.read import load
gpu.save(path)
for timeline in (gpu.timeline(), load(path)):
    reads, lines = timeline.clock_reads, timeline.lines
    print("READS", lines.line[reads.line].tolist(), (reads.time[1:] >= reads.time[:-1]).all(), reads.time.max())
"""
    )
    said = on_virtual_gpu(tmp_path, program, end).splitlines()
    of_run, of_file = (line for line in said if line.startswith("READS"))
    assert of_run.startswith("READS [4, 6, 7, 7] True")
    assert of_file.split()[:6] == of_run.split()[:6]
