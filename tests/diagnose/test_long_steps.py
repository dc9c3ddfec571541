"""A few steps that take far longer than the others are told of: figures per step are of neither then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from traces import TraceBuilder

from unstall.diagnose.long_steps import of_long_steps
from unstall.diagnose.run import analyse


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
    assert _of([1, 1, 20, 1, 1, 30]) == (
        "2 of 6 steps take 25.0 ms each, the others 1.01 ms: figures per step are the mean of all steps."
    )
    assert _of([2, 2, 9, 2, 2]) == (
        "1 of 5 steps takes 9.01 ms, the others 2.01 ms: figures per step are the mean of all steps."
    )


@pytest.mark.parametrize(
    "kernels",
    [
        [4, 4, 4, 4, 4],
        [4, 5, 6, 7, 8],  # none is twice as long as the median
        [1] * 40 + [3],  # that one is a twentieth of the time
        [1, 20, 1],  # three tell no usual step
        [1, 1, 20, 20, 20],  # most are long
    ],
)
def test_steps_that_differ_little_or_hardly_matter_are_not(kernels: list[int]) -> None:
    assert _of(kernels) is None


def test_a_host_that_runs_ahead_and_waits_once_makes_no_step_longer() -> None:
    assert _of([10] * 8, reads=False) is None
