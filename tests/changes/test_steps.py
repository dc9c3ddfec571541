"""The step time, the accounts and the sentence."""

from __future__ import annotations

import pytest
from changes.runs import compared, launching, steps
from traces import TraceBuilder


def test_a_run_whose_kernels_take_half_as_long_is_faster_by_what_they_save() -> None:
    result = compared(steps(launching(400)), steps(launching(200)))
    assert result.step_ns
    assert result.summary.faster == "b"
    assert result.step_ns.change == pytest.approx(-200_000, abs=1_000)
    assert result.summary.text.startswith("B is 1.9")
    assert "kernels with no copy beside them: 400 µs in A, 200 µs in B" in result.summary.text


def test_the_parts_of_the_change_add_up_to_it() -> None:
    result = compared(steps(launching(400)), steps(launching(3)))
    assert result.step_ns
    parts = sum(account.time_ns.change for account in result.accounts)
    assert parts == pytest.approx(result.step_ns.change, abs=len(result.accounts))


def test_steps_that_differ_among_themselves_more_than_the_runs_do_are_no_difference() -> None:
    def uneven(offset: float) -> TraceBuilder:
        return steps(lambda trace, step: launching(300 + 200 * (step % 2) + offset)(trace, step))

    result = compared(uneven(0), uneven(20))
    assert result.summary.faster is None
    assert result.step_ns
    assert not result.step_ns.beyond_noise
    assert "may be chance" in result.summary.text


def test_a_slow_first_step_does_not_hide_that_all_steps_of_one_run_are_shorter() -> None:
    def slow_at_first(usual: float, first: float) -> TraceBuilder:
        return steps(lambda trace, step: launching(usual if step else first)(trace, step))

    result = compared(slow_at_first(330, 500), slow_at_first(270, 300))
    assert result.step_ns
    assert not result.step_ns.beyond_noise
    assert result.summary.faster == "b"
    assert "every step of B is shorter than any of A" in result.summary.text


def test_a_step_ends_when_the_device_is_done_with_it_though_the_host_ran_ahead() -> None:
    result = compared(steps(launching(1000)), steps(launching(1000)))
    assert result.a.longest_step_ns - result.a.shortest_step_ns < 20_000


def test_single_steps_are_compared_with_a_caveat() -> None:
    result = compared(steps(launching(400), count=1), steps(launching(200), count=1))
    assert result.step_ns
    assert result.step_ns.noise is None
    assert [caveat.code for caveat in result.caveats] == ["noise"]
    assert "one step each, so this may be chance" in result.summary.text


def test_what_a_graph_took_over_is_said() -> None:
    def singly(trace: TraceBuilder, step: int) -> None:
        for _ in range(5):
            trace.launch("gemm", 5, host_us=50)

    def by_graph(trace: TraceBuilder, step: int) -> None:
        trace.graph([5] * 5)

    result = compared(steps(singly), steps(by_graph))
    assert result.launches
    assert (result.launches.calls.a, result.launches.calls.b) == (5, 1)
    assert (result.launches.graph_launches.b, result.launches.kernels_in_graphs.b) == (1, 5)
    assert "B runs 5 kernels a step by 1 graph launch: 1 launching call a step in all, 5 in A." in result.summary.text
