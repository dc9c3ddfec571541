"""The device is faster than the host dispatches."""

from __future__ import annotations

from findings import found, only, place
from traces import TraceBuilder


def layers(kernel_us: float, *, count: int = 20, stacks: bool = True) -> TraceBuilder:
    """Each operator takes the host 2 µs and its launch 5."""
    trace = TraceBuilder(stacks=stacks)
    with trace.step(), trace.frame("train.py", 12, "train"), trace.frame("model/net.py", 30, "forward"):
        for _ in range(count):
            with trace.op("aten::relu"):
                trace.launch("relu", kernel_us)
    return trace


def test_idle_time_between_short_kernels_is_the_launches() -> None:
    """Kernels start every 7 µs and run for 3: 4 µs are lost between each two. The step begins at 1 µs, and enters
    itself, two functions and an operator until the first launch at 6, which arrives at 13."""
    finding = only(layers(3), "launch-bound")
    assert place(finding) == ("model/net.py", 30, "forward")
    assert finding.count == 20
    assert finding.exposed_ns == 12_000 + 19 * 4_000
    assert finding.wait_ns == 0
    assert finding.edit == "graph:model/net.py:forward"
    assert "20 launches, ops of 3.00 µs (median)" in finding.saw


def test_kernels_longer_than_their_dispatch_are_not_launch_bound() -> None:
    assert found(layers(100), "launch-bound") == []


def test_the_function_named_is_the_innermost_that_holds_most_of_it() -> None:
    """Two functions share the idle time: their caller stands for the stretch, and they are named in it."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for line, name in ((30, "encode"), (60, "decode")):
            with trace.frame("model/net.py", line, name):
                for _ in range(20):
                    with trace.op("aten::relu"):
                        trace.launch("relu", 3)
    finding = only(trace, "launch-bound")
    assert place(finding) == ("train.py", 12, "train")
    assert finding.count == 40
    assert "model/net.py:30 encode" in finding.saw
    assert "model/net.py:60 decode" in finding.saw


def test_without_stacks_it_is_told_by_operator_and_the_edit_has_no_place() -> None:
    finding = only(layers(3, stacks=False), "launch-bound")
    assert place(finding) == (None, None, "aten::relu")
    assert finding.edit == "graph"


def test_graphs_launched_late_are_not_told_to_become_graphs() -> None:
    trace = TraceBuilder(launch_us=100)
    with trace.frame("train.py", 12, "train"):
        for _ in range(5):
            trace.graph([3, 3])
    finding = only(trace, "launch-bound")
    assert finding.count == 5
    assert finding.edit is None
    assert "CUDA graph" not in finding.fix


def test_a_host_that_is_ahead_and_restarts_late_once_is_not_launch_bound() -> None:
    """One wait, and then a queue that is never empty: the one late launch is the wait's."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(20):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
        trace.item()
        for _ in range(20):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
    assert found(trace, "launch-bound") == []
