"""`unstall audit` counts what `unstall check` counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from programs import Program, programs
from traces import TraceBuilder

from unstall.auditing.figures_of import figures_of
from unstall.diagnose.explain import explain


@settings(max_examples=15, deadline=None)
@given(programs())
def test_the_waits_of_an_audit_are_the_mean_of_those_that_are_checked(program: Program) -> None:
    result = explain(program.timeline()).result
    figures = figures_of(result)
    waits, launches = result.waits, result.launches
    assert figures.waits_per_step == pytest.approx(waits.count / result.steps.count if waits else 0)
    assert figures.launches == pytest.approx(launches.count / result.steps.count if launches else 0)


def test_an_operator_that_asks_for_memory_and_waits_counts_once() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 3, "train"), trace.op("aten::to"):
            trace.call("cudaMalloc", 90)
            trace.copy("HtoD", 900, memory="Pageable")
            trace.launch()
    result = explain(trace.timeline()).result
    (wait,) = figures_of(result).waits
    assert (wait.rule, wait.per_step) == ("pageable-copy", 1.0)
    assert wait.gain_ns is not None


def test_copies_are_those_between_host_and_device() -> None:
    trace = TraceBuilder()
    for number in range(4):
        with trace.step(), trace.frame("train.py", 3, "train"):
            trace.copy("HtoD", 9, memory="Pinned")
            trace.copy("DtoD", 9)
            trace.launch()
            if number == 2:
                trace.item()
    result = explain(trace.timeline()).result
    assert result.copies is not None
    assert (result.copies.most, result.copies.step, result.copies.count) == (2, 3, 5)
    assert figures_of(result).copies == 1.25
