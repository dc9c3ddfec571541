"""Many tiny kernels in a row from one line."""

from __future__ import annotations

import numpy as np
import pytest
from findings import found, only, place
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.diagnose.explain import explain


def unfused(kernels: int, kernel_us: float, *, names: int = 2) -> TraceBuilder:
    """An optimizer's loop over parameters, and a kernel of 500 µs ahead of it."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 500)
        with trace.frame("sgd.py", 50, "update"):
            for i in range(kernels):
                with trace.op("aten::add_"):
                    trace.launch(f"elementwise_{i % names}", kernel_us)
    return trace


def test_idle_time_between_them_is_what_they_cost() -> None:
    """The large one runs 11-511 µs; the i-th of 2 µs arrives at 18 + 7 i. The first 99 are done by 709, the next
    comes at 711, and each of the last hundred 5 µs after the one before has ended."""
    finding = only(unfused(200, 2), "tiny-kernels")
    assert place(finding) == ("sgd.py", 50, "update")
    assert finding.count == 200
    assert finding.exposed_ns == 2_000 + 100 * 5_000


def test_the_gain_is_said_to_be_that_of_the_function_whose_graph_is_replayed() -> None:
    finding = only(unfused(200, 2), "tiny-kernels")
    assert finding.edit == "graph:sgd.py:update"
    assert finding.fix.endswith("The gain is for a CUDA graph of all that update launches, not of this line alone")


@pytest.mark.parametrize(
    ("kernels", "kernel_us", "names"),
    [(20, 2, 2), (200, 6, 2), (200, 2, 200)],
    ids=["too few", "too long", "too diverse"],
)
def test_otherwise_there_is_none(kernels: int, kernel_us: float, names: int) -> None:
    assert found(unfused(kernels, kernel_us, names=names), "tiny-kernels") == []


def test_queued_back_to_back_they_cost_nothing_and_are_not_listed() -> None:
    trace = TraceBuilder(launch_us=1, enter_us=0)
    with trace.frame("sgd.py", 50, "update"):
        trace.launch("gemm", 5_000)
        for _ in range(100):
            with trace.op("aten::add_"):
                trace.launch("elementwise", 2)
    assert found(trace, "tiny-kernels") == []


def test_those_of_no_known_line_are_not_promised_what_capturing_the_lines_of_others_gains() -> None:
    """Everywhere, the edit would be made of what has lines too."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 500)
        for _ in range(200):
            with trace.backward("torch::autograd::AccumulateGrad", 1):
                trace.launch("add", 2)
    finding = only(trace, "tiny-kernels")
    assert finding.where.file is None
    assert finding.edit is None
    assert finding.gain_ns is None


def test_a_stretch_that_is_nothing_else_is_theirs_alone() -> None:
    trace = unfused(200, 2)
    assert only(trace, "tiny-kernels").edit == "graph:sgd.py:update"
    assert found(trace, "launch-bound") == []


def test_in_a_stretch_in_which_the_host_is_ahead_they_are_told_of() -> None:
    """13 of 163 launches of a step find the device idle, after the wait of the one before; the kernels in the row were
    queued for long, with 1 µs from one to the next."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 12, "train"):
            for length in (*[3] * 12, 2_500):
                with trace.op("aten::mm"):
                    trace.launch("gemm", length)
            with trace.frame("sgd.py", 50, "update"):
                for _ in range(150):
                    with trace.op("aten::add_"):
                        trace.launch("elementwise", 2)
            trace.sync()
    timeline = trace.timeline()
    device = timeline.device
    is_tiny = device.name == timeline.strings.index("elementwise")
    gapped = replace(timeline, device=replace(device, end=np.where(is_tiny, device.end - 1_000, device.end)))
    findings = {finding.rule: finding for finding in explain(gapped).result.findings}
    assert place(findings["tiny-kernels"]) == ("sgd.py", 50, "update")
    assert findings["tiny-kernels"].exposed_ns == 149_000
    assert "in runs of" not in findings["launch-bound"].saw


def test_lines_that_take_turns_in_a_loop_are_one_row() -> None:
    """As the line clock tells it: no line launches two in a row."""
    trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "lines": "exact"})
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 500)
    for _ in range(100):
        for line in (51, 52):
            with trace.frame("sgd.py", line, "update"):
                trace.work(line - 50)
                trace.launch(f"elementwise_{line}", 2)
    finding = only(trace, "tiny-kernels")
    assert place(finding) == ("sgd.py", 52, "update")
    assert finding.where.line_is == "exact"
    assert finding.count == 200
    assert finding.edit == "graph:sgd.py:update"
    assert found(trace, "launch-bound") == []


def test_what_it_shows_is_the_idle_time_between_them() -> None:
    finding = only(unfused(200, 2), "tiny-kernels")
    assert sum(end - start for start, end in finding.spans) == finding.exposed_ns - 2_000
    assert len(finding.spans) == 100
