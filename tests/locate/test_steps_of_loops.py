"""Steps of several loops, whose last steps end with the loops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.locate.steps import find_steps
from unstall.report.wording import steps_line


def loops(*lengths: int, last_launches: int = 4) -> TraceBuilder:
    """Loops of so many steps. After each loop, the program checks results for 1 ms."""
    trace, number = TraceBuilder(enter_us=0.001), 0
    for length in lengths:
        for step in range(length):
            with trace.annotation(f"unstall.step#{number}"):
                for _ in range(4 if step < length - 1 else last_launches):
                    trace.launch("gemm", 10)
            number += 1
        trace.launch("check", 1_000)
        trace.sync()
    return trace


def test_the_longest_loop_is_what_counts_and_what_follows_it_is_no_step() -> None:
    result = result_of(loops(5, 9, 3))
    alone = result_of(loops(9))
    assert (result.steps.count, alone.steps.count) == (9, 9)
    assert result.steps.mean_ns == pytest.approx(alone.steps.mean_ns, rel=0.01)
    assert result.steps.left_out is not None
    assert (result.steps.left_out.loops, result.steps.left_out.of) == (8, 17)
    assert steps_line(result.source, result.steps).endswith("; left out: 8 of other loops than the longest")


def test_of_loops_that_are_equally_long_the_last_one_counts() -> None:
    timeline = loops(6, 6).timeline()
    steps = find_steps(timeline)
    assert len(steps) == 6
    assert steps.start[0] > timeline.host.start[[timeline.text(n) == "unstall.step#5" for n in timeline.host.name]][0]


def test_however_often_a_loop_repeats_what_is_between_two_loops_is_no_step() -> None:
    result = result_of(loops(*[4] * 9))
    assert (result.steps.count, result.steps.left_out is not None) == (4, True)
    assert result.steps.mean_ns == pytest.approx(result_of(loops(4)).steps.mean_ns, rel=0.01)


def test_steps_in_which_nothing_is_launched_are_told() -> None:
    result = result_of(loops(9, last_launches=0))
    assert result.steps.count == 8
    assert steps_line(result.source, result.steps).endswith("; left out: 1 in which nothing is launched")


def training(others: Sequence[int], by: str = "Optimizer.step#SGD.step", *, longer: bool = False) -> TraceBuilder:
    """Trains, for each of `others`, one step of four kernels forward, four backward and an update. Before the step,
    an evaluation launches so many kernels. With `longer`, the passes of the step are so much longer instead."""
    trace = TraceBuilder(enter_us=0.001)

    def launch(name: str, count: int) -> None:
        for _ in range(count):
            trace.launch(name, 10)

    for number, other in enumerate(others):
        with trace.annotation(f"{by}#{number}") if by == "unstall.step" else nullcontext():
            launch("forward", other + 4)
            launch("backward", other + 4 if longer else 4)
            with nullcontext() if by == "unstall.step" else trace.annotation(by):
                launch("update", 1)
    trace.sync()
    return trace


TWO_EVALUATIONS = (*[0] * 6, 30, *[0] * 5, 20, *[0] * 5)


@pytest.mark.parametrize("by", ["Optimizer.step#SGD.step", "unstall.step"])
def test_an_evaluation_between_two_training_loops_is_in_no_step(by: str) -> None:
    """The last loop counts, without the step that begins with the evaluation."""
    result, alone = result_of(training(TWO_EVALUATIONS, by)), result_of(training([0] * 6, by))
    left_out = result.steps.left_out
    assert left_out is not None
    assert (result.steps.count, left_out.mixed, left_out.of - left_out.count) == (5, 2, 5)
    assert "2 with an evaluation or other work before the step" in steps_line(result.source, result.steps)
    assert result.steps.mean_ns == pytest.approx(alone.steps.mean_ns, rel=0.02)


def test_one_loop_that_other_work_cuts_is_not_called_several() -> None:
    result = result_of(training((0, 30, *[0] * 9)))
    assert steps_line(result.source, result.steps).endswith(
        "; left out: 1 of other loops or stretches than the longest and 1 with an evaluation or other work before the "
        "step"
    )


def test_a_step_that_is_long_in_itself_counts() -> None:
    """A longer sequence has more launches of all kinds, so the step does not end as others do."""
    steps = find_steps(training(TWO_EVALUATIONS, longer=True).timeline())
    assert (len(steps), steps.left_out) == (18, None)


def test_a_step_that_uses_a_kernel_for_the_first_time_counts() -> None:
    """Its module is loaded, and the launches after that take longer, as they are no longer in the CPU's caches."""
    trace = TraceBuilder(enter_us=0.001)
    for step in range(9):
        if step == 4:
            trace.call("cuLibraryLoadData", 5_000, category="cuda_driver")
            for kernel in ("random", "topk", "sort"):
                trace.launch(kernel, 1)
        for _ in range(8):
            trace.work(20 if step == 4 else 1)
            trace.launch("gemm", 1)
        with trace.optimizer():
            trace.launch("update", 1)
    steps = find_steps(trace.timeline())
    assert (len(steps), steps.left_out) == (9, None)


def test_other_work_in_many_steps_is_part_of_them() -> None:
    steps = find_steps(training((0, 20, 0, 0, 20, 20, 0, 20, 0, 0, 0, 20)).timeline())
    assert (len(steps), steps.left_out) == (12, None)


def test_a_step_that_is_no_longer_than_others_counts_whatever_it_launches() -> None:
    steps = find_steps(training((*[0] * 6, 2, *[0] * 5, 3, *[0] * 5)).timeline())
    assert (len(steps), steps.left_out) == (18, None)
