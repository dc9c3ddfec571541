"""Steps of several loops, whose last steps end with the loops."""

from __future__ import annotations

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
