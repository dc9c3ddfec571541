"""Copies on a stream of their own that the computation hides only in part."""

from __future__ import annotations

import pytest
from findings import found, only, place
from traces import TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.diagnose.verdict import judge


def prefetched(copy_us: float, kernel_us: float, *, hold: bool = False) -> TraceBuilder:
    """Ten copies on one stream, each with a kernel on another that needs it; or each copy needs the last kernel too."""
    trace = TraceBuilder(launch_us=1)
    with trace.step(), trace.frame("offload.py", 30, "run"):
        for _ in range(10):
            with trace.op("aten::copy_"):
                trace.copy("HtoD", copy_us, stream=20)
            trace.stream_wait(trace.record(stream=20), stream=7)
            with trace.op("aten::mm"):
                trace.launch("gemm", kernel_us)
            if hold:
                trace.stream_wait(trace.record(stream=7), stream=20)
    return trace


def test_copies_that_take_longer_are_found_for_the_time_that_they_run_alone() -> None:
    """Each kernel runs beside the next copy: 600 of each copy's 1,000 µs are alone, and all of the first."""
    finding = only(prefetched(1_000, 400), "partial-overlap")
    assert place(finding) == ("offload.py", 30, "run")
    assert (finding.count, finding.where.op) == (10, "aten::copy_")
    assert finding.exposed_ns == pytest.approx(6_400_000, rel=0.01)
    assert "longer than the computation" in finding.title
    assert "10 copies (9.54 MiB) in 10.0 ms, 1.0 GB/s" in finding.saw


def test_then_copies_are_what_bounds_the_run() -> None:
    """As are no longer ones: they run beside computation for 3.6 of 10.4 ms."""
    verdict = judge(analyse(prefetched(1_000, 400).timeline()))
    assert verdict.bound_by == "copy"
    assert "computing and copying at once" in verdict.text
    assert judge(analyse(prefetched(400, 1_000).timeline())).bound_by == "device"


def test_copies_that_computation_hides_are_not_found() -> None:
    assert found(prefetched(400, 4_000), "partial-overlap") == []


def test_copies_that_overlap_with_nothing_are_another_rules_business() -> None:
    trace = prefetched(1_000, 400, hold=True)
    assert found(trace, "partial-overlap") == []
    assert only(trace, "lonely-stream").count == 10
