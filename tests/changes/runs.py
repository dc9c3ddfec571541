"""Pairs of made runs, and what `diff` says of them."""

from __future__ import annotations

from collections.abc import Callable

from traces import TraceBuilder

from unstall.changes.result import DiffResult
from unstall.changes.runs import diff
from unstall.diagnose.explain import explain


def steps(body: Callable[[TraceBuilder, int], object], *, count: int = 4, stacks: bool = True) -> TraceBuilder:
    """A run of `count` steps; `body` is given the trace and the step's number."""
    trace = TraceBuilder(stacks=stacks)
    for number in range(count):
        with trace.step(), trace.frame("train.py", 10, "train"):
            body(trace, number)
    return trace


def recorded(
    body: Callable[[TraceBuilder, int], object],
    *,
    recorder: str = "cupti",
    marks: str = "optimizer",
    count: int = 4,
    **more: str,
) -> TraceBuilder:
    """The same as a recorder of unstall's own has it; cupti knows no operators. `more` is what else it says."""
    about = {"schema": "unstall.recording/1", "recorder": recorder, "lines": "exact", "step_marks": marks, **more}
    trace = TraceBuilder(operators=recorder != "cupti", unstall=about)
    for number in range(count):
        with trace.annotation(f"unstall.step#{number}"), trace.frame("train.py", 10, "train"):
            body(trace, number)
    return trace


def compared(a: TraceBuilder, b: TraceBuilder) -> DiffResult:
    return diff(explain(a.timeline()), explain(b.timeline()))


def launching(device_us: float, *, kernel: str = "gemm") -> Callable[[TraceBuilder, int], object]:
    """A step of one kernel."""

    def body(trace: TraceBuilder, step: int) -> None:
        with trace.op("aten::mm"):
            trace.launch(kernel, device_us)

    return body
