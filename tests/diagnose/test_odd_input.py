"""Runs that once misled: odd names, collectives of the host, layers with embeddings, one op that is joined wrongly."""

from __future__ import annotations

import pytest
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.locate.steps import find_steps
from unstall.timeline.clock_skew import clock_skew
from unstall.timeline.columns import Timeline


@pytest.mark.parametrize("names", [("x1 *", "x2 3", "x4 *", "x5 6"), (f"step {'9' * 400}", f"step {'8' * 401}")])
def test_names_with_stars_and_endless_numbers_are_names(names: tuple[str, ...]) -> None:
    trace = TraceBuilder()
    for name in names:
        with trace.annotation(name):
            trace.launch("gemm", 10)
            trace.launch("relu", 10)
    assert explain(trace.timeline()).result.steps.count >= 1


def test_collectives_of_the_host_are_communication() -> None:
    """Faster host code does not shorten them, and no kernel of theirs runs."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step():
            trace.launch("gemm", 100)
            with trace.annotation("gloo:all_reduce"):
                trace.work(5_000)
    verdict = explain(trace.timeline(), as_recorded=True).result.verdict
    assert verdict.bound_by == "comm"
    assert verdict.if_free is not None
    assert verdict.if_free["host"] < 0.1 * verdict.if_free["communication"]


def test_an_embedding_in_each_layer_does_not_make_steps_of_layers() -> None:
    trace = TraceBuilder(stacks=False)
    with trace.op("aten::embedding"):
        trace.launch("embedding", 5)
    for _ in range(12):
        with trace.op("aten::embedding"):
            trace.launch("relative_position", 3)
        for kernel in ("qkv", "attention", "mlp"):
            with trace.op("aten::mm"):
                trace.launch(kernel, 20)
    with trace.op("aten::mm"):
        trace.launch("head", 50)
    assert find_steps(trace.timeline(), None).found_by == "whole"


def test_one_op_of_many_that_seems_to_start_early_moves_no_clock() -> None:
    timeline = _launches(500)
    assert clock_skew(timeline) == 0
    timeline.device.start[7] = timeline.host.start[timeline.device.launch[7]] - 40_000
    assert clock_skew(timeline) == 0


def _launches(count: int) -> Timeline:
    trace = TraceBuilder()
    for _ in range(count):
        trace.launch("gemm", 1)
        trace.work(60)
    return trace.timeline()
