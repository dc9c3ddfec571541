"""A CUDA graph is promised together with what must be done first if shapes change in each step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from findings import only, result_of
from traces import TraceBuilder

_STEPS = 8


def steps_of(
    lengths: Sequence[int], *, shapes: bool = True, grids: bool = False, operators: bool = True
) -> TraceBuilder:
    """Steps of operators on one input, whose length is another one in each step; the weights have one shape."""
    trace = TraceBuilder(operators=operators)
    for length in lengths:
        with trace.step(), trace.frame("gen.py", 3, "token"):
            for _ in range(20):
                with trace.op("aten::addmm", shapes=[[64], [1, length], [length, 64], []] if shapes else None):
                    trace.launch("gemm", 5.5, grid=[length, 1, 1] if grids else None)
    return trace


def test_shapes_that_grow_in_each_step_are_told_before_a_graph_is_advised() -> None:
    finding = only(steps_of(range(30, 30 + _STEPS)), "launch-bound")
    assert finding.title == "The device waits for the host to dispatch work whose shapes grow"
    assert finding.saw.startswith(
        "in each step the input shapes of 20 of 20 operators grow (aten::addmm 1x30, 1x31, 1x32, …); "
    )
    assert finding.fix.startswith("pad what grows to one length")
    assert "; then capture these operators in a CUDA graph" in finding.fix


def test_without_input_shapes_the_grids_tell() -> None:
    finding = only(steps_of(range(30, 30 + _STEPS), shapes=False, grids=True, operators=False), "launch-bound")
    assert "in each step the grids of 20 of 20 launches grow (30 blocks, 31 blocks, 32 blocks, …)" in finding.saw


def test_shapes_that_change_without_growing_are_said_to_change() -> None:
    finding = only(steps_of([30, 41, 35, 52, 33, 47, 38, 60]), "launch-bound")
    assert finding.title.endswith("work whose shapes change")
    assert "of 20 of 20 operators change (aten::addmm 1x30, 1x41, 1x35, …)" in finding.saw


def test_steps_of_other_numbers_of_operators_differ() -> None:
    trace = TraceBuilder()
    for number in range(_STEPS):
        with trace.step(), trace.frame("gen.py", 3, "token"):
            for _ in range(20 + number):
                with trace.op("aten::relu", shapes=[[4 + number]]):
                    trace.launch("relu", 5.5)
    saw = only(trace, "launch-bound").saw
    assert "in each step about 24 of 24 operators are of other shapes or kernels than in the step before" in saw


@pytest.mark.parametrize(
    "lengths",
    [
        [30] * _STEPS,
        [30] * (_STEPS - 1) + [7],  # the last batch
        [30, 40] * (_STEPS // 2),  # each is captured once
        [30, 31],  # of two steps nobody knows
    ],
)
@pytest.mark.parametrize("recorded", [{"shapes": True}, {"shapes": False, "grids": True}, {"shapes": False}])
def test_nothing_is_said_of_shapes_that_recur(lengths: list[int], recorded: dict[str, bool]) -> None:
    finding = only(steps_of(lengths, **recorded), "launch-bound")
    assert finding.title == "The device waits for the host to dispatch"
    assert "pad" not in finding.fix


def test_layers_of_other_shapes_are_no_change_from_step_to_step() -> None:
    trace = TraceBuilder()
    for _ in range(_STEPS):
        with trace.step(), trace.frame("net.py", 3, "forward"):
            for layer in range(20):
                with trace.op("aten::cat", shapes=[[1, 32 + layer]]):
                    trace.launch("cat", 5.5)
    assert "pad" not in only(trace, "launch-bound").fix


def test_one_operator_among_many_is_no_reason_against_a_graph() -> None:
    trace = TraceBuilder()
    for number in range(_STEPS):
        with trace.step(), trace.frame("net.py", 3, "forward"):
            for layer in range(20 + number % 2):
                with trace.op("aten::relu", shapes=[[4 if layer else 4 + number]]):
                    trace.launch("relu", 5.5)
    assert "pad" not in only(trace, "launch-bound").fix


def test_tiny_kernels_whose_shapes_change_are_told_too() -> None:
    trace = TraceBuilder()
    for number in range(_STEPS):
        with trace.step(), trace.frame("gen.py", 3, "token"):
            for _ in range(64):
                with trace.op("aten::mul", shapes=[[1, 30 + number]]):
                    trace.launch("mul", 1)
    finding = only(trace, "tiny-kernels")
    assert "64 of 64 operators grow (aten::mul 1x30, 1x31, 1x32, …)" in finding.saw
    assert "or pad what grows to one length" in finding.fix


def test_in_a_run_without_steps_the_repetitions_of_a_scripts_own_loop_are_compared() -> None:
    """Repetitions that may be layers, as nothing but launches is recorded."""
    trace = TraceBuilder(operators=True)
    with trace.frame("gen.py", 1, "<module>"):
        with trace.op("aten::normal_", shapes=[[64, 64]]):
            trace.launch("fill", 5.5)
        for length in range(30, 42):
            for kernel in ("norm", "gemm", "relu", "gemm", "softmax", "gemm", "add"):
                with trace.op(f"aten::{kernel}", shapes=[[1, length]]):
                    trace.launch(kernel, 5.5)
        with trace.op("aten::sum", shapes=[[1, 42]]):
            trace.launch("reduce", 5.5)
    result = result_of(trace)
    assert result.steps.found_by == "whole"
    (finding,) = (each for each in result.findings if each.rule in ("launch-bound", "tiny-kernels"))
    assert "in each repetition the input shapes of 7 of 7 operators grow (aten::gemm" in finding.saw
