"""Steps are the same work in both runs, whatever told them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from changes.runs import compared, launching, recorded, steps
from traces import TraceBuilder

from unstall.changes.result import DiffResult


def _layers(times: int) -> Callable[[TraceBuilder, int], object]:
    """A step of so many layers, of two kernels each."""

    def body(trace: TraceBuilder, step: int) -> None:
        for _ in range(times):
            launching(100)(trace, step)
            launching(50, kernel="relu")(trace, step)

    return body


def _said(result: DiffResult) -> str:
    (text,) = (caveat.text for caveat in result.caveats if caveat.code == "steps")
    return text


def test_a_step_that_is_several_of_the_other_run_is_compared_with_so_many() -> None:
    result = compared(recorded(_layers(4)), recorded(_layers(1), marks="forward", count=17))
    assert result.compared == (1, 4)
    assert result.step_ns
    assert result.step_ns.a == pytest.approx(result.step_ns.b, rel=0.05)
    assert result.launches
    assert (result.launches.kernels.a, result.launches.kernels.b) == (8, 8)
    assert "as often in a step of A as in 4 steps of B: all figures of B are for 4 of its steps" in _said(result)


def test_the_other_way_round_the_first_runs_steps_are_put_together() -> None:
    result = compared(recorded(_layers(1), marks="forward", count=17), recorded(_layers(4)))
    assert result.compared == (4, 1)
    assert result.promise
    assert result.promise.before_ns == pytest.approx(result.promise.got_ns, rel=0.1)
    assert "all figures of A are for 4 of its steps, as one of B is" in _said(result)


def test_a_change_that_replaces_a_kernel_hides_no_alignment() -> None:
    def mended(trace: TraceBuilder, step: int) -> None:
        _layers(1)(trace, step)
        launching(10, kernel="fused")(trace, step)

    assert compared(recorded(_layers(3)), recorded(mended, marks="explicit", count=9)).compared == (1, 3)


def test_fewer_steps_than_one_of_the_other_run_takes_are_not_compared() -> None:
    result = compared(recorded(_layers(8)), recorded(_layers(1), marks="forward", count=4))
    assert result.step_ns is None
    assert "nothing is compared" in _said(result)


def test_steps_told_by_period_in_one_run_are_compared_with_those_of_the_optimizer() -> None:
    period = TraceBuilder()
    for number in range(6):
        with period.frame("train.py", 10, "train"):
            period.copy("HtoD", 1 << 20)
            _layers(2)(period, number)
    result = compared(period, recorded(_layers(2)))
    assert result.a.steps.found_by == "period"
    assert result.step_ns
    assert result.compared[1] * 4 == pytest.approx(result.launches.kernels.b if result.launches else 0)


def test_a_whole_run_is_compared_with_as_many_steps_as_it_has() -> None:
    whole = TraceBuilder()
    with whole.frame("train.py", 10, "train"):
        _layers(2)(whole, 0)
    result = compared(whole, recorded(_layers(1), count=8))
    assert result.a.steps.found_by == "whole"
    assert result.compared == (1, 2)
    assert "No steps were found in A" in _said(result)


def test_a_whole_run_with_much_else_is_not() -> None:
    whole = TraceBuilder()
    with whole.frame("train.py", 10, "train"):
        for number in range(40):
            whole.launch(f"set_up_{number}", 10)
        _layers(2)(whole, 0)
    result = compared(whole, recorded(_layers(1), count=8))
    assert result.a.steps.found_by == "whole"
    assert result.step_ns is None


def test_with_no_kernel_in_common_the_loops_lines_tell_it() -> None:
    def run(kernel: str, rounds: int, marks: str) -> TraceBuilder:
        def body(trace: TraceBuilder, step: int) -> None:
            for _ in range(rounds):
                with trace.frame("train.py", 12, "forward"):
                    launching(100, kernel=kernel)(trace, step)
                with trace.frame("train.py", 13, "backward"):
                    launching(100, kernel=f"{kernel}_backward")(trace, step)

        return recorded(body, marks=marks, count=6)

    result = compared(run("gemm", 3, "optimizer"), run("fused", 1, "forward"))
    assert result.compared == (1, 3)
    assert "Of 2 lines that both run, 2 run as often in a step of A as in 3 steps of B" in _said(result)


def test_steps_told_alike_are_one_to_one_though_a_step_does_more() -> None:
    assert compared(steps(_layers(4)), steps(_layers(1))).compared == (1, 1)
