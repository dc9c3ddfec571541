"""A few steps that take far longer than the others are told of: figures per step are of neither then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from traces import TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.diagnose.long_steps import of_long_steps


def _of(kernels: Sequence[int], *, reads: bool = True) -> str | None:
    """Steps of so many kernels of 1 ms; the host waits in each, or where it is to run ahead, in the last."""
    trace = TraceBuilder(launch_us=10, latency_us=0, enter_us=0)
    for number, count in enumerate(kernels):
        with trace.step():
            for _ in range(count):
                trace.launch("gemm", 1_000)
            if reads or number == len(kernels) - 1:
                trace.item()
    return of_long_steps(analyse(trace.timeline()))


def test_steps_with_an_evaluation_are_told_from_the_others() -> None:
    assert _of([1, 1, 20, 1, 1, 22]) == (
        "2 of 6 steps take 21.0 ms each, the others 1.01 ms: figures per step are the mean of all steps."
    )
    assert _of([2, 2, 9, 2, 2]) == (
        "1 of 5 steps takes 9.01 ms, the others 2.01 ms: figures per step are the mean of all steps."
    )


def test_long_steps_that_differ_have_a_range() -> None:
    assert _of([900, 38, 1, 1, 1, 1]) == (
        "2 of 6 steps take 38.0 ms to 900 ms each, the others 1.01 ms: figures per step are the mean of all steps."
    )


def test_so_do_the_others() -> None:
    assert _of([6, 6, 9, 9, 90]) == (
        "1 of 5 steps takes 90.0 ms, the others 6.01 ms to 9.01 ms: figures per step are the mean of all steps."
    )


def test_the_first_step_is_called_so() -> None:
    assert _of([20, 1, 1]) == (
        "The first of 3 steps takes 20.0 ms, the others 1.01 ms: figures per step are the mean of all steps."
    )


def test_of_two_steps_the_longer_is_told_from_the_other() -> None:
    assert _of([3, 900]) == (
        "1 of 2 steps takes 900 ms, the other 3.01 ms: figures per step are the mean of all steps."
    )


def test_so_are_steps_that_are_shorter_than_most() -> None:
    assert _of([20, 20, 1, 1, 20]) == (
        "2 of 5 steps take 1.01 ms each, the others 20.0 ms: figures per step are the mean of all steps."
    )


def test_steps_that_are_all_of_different_length_have_a_range() -> None:
    assert _of([1, 10, 100]) == (
        "The 3 steps take from 1.01 ms to 100 ms, half of them 10.0 ms or less: figures per step are the mean of all "
        "steps."
    )


@pytest.mark.parametrize(
    "kernels",
    [
        [4, 4, 4, 4, 4],
        [4, 5, 6, 7, 8],  # none is twice as long as the median
        [1] * 40 + [3],  # that one is a twentieth of the time
        [10, 19],  # of two, none is twice as long as the other
    ],
)
def test_steps_that_differ_little_or_hardly_matter_are_not(kernels: list[int]) -> None:
    assert _of(kernels) is None


def test_a_host_that_runs_ahead_and_waits_once_makes_no_step_longer() -> None:
    assert _of([10] * 8, reads=False) is None
