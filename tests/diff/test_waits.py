"""Waits that came, went or changed."""

from __future__ import annotations

from diff.runs import compared, launching, steps
from traces import TraceBuilder


def _reading(trace: TraceBuilder, step: int) -> None:
    launching(100)(trace, step)
    trace.item()


def test_a_wait_that_is_gone_is_listed_with_its_place_and_operator() -> None:
    (change,) = compared(steps(_reading), steps(launching(100))).waits
    assert change.where_a
    assert (change.status, change.where_b) == ("gone", None)
    assert (change.where_a.file, change.where_a.line, change.where_a.op) == ("train.py", 10, "aten::item")
    assert (change.count.a, change.count.b) == (1, 0)
    assert change.wait_ns.a > 80_000
    assert change.wait_ns.b == 0


def test_a_wait_that_takes_longer_is_changed() -> None:
    def reading(device_us: float) -> TraceBuilder:
        def body(trace: TraceBuilder, step: int) -> None:
            launching(device_us)(trace, step)
            trace.item()

        return steps(body)

    (change,) = compared(reading(100), reading(300)).waits
    assert change.status == "changed"
    assert change.wait_ns.change == 200_000


def test_a_wait_under_another_operator_at_the_same_place_is_another_wait() -> None:
    def testing(trace: TraceBuilder, step: int) -> None:
        launching(100)(trace, step)
        with trace.op("aten::is_nonzero"):
            trace.item()

    changes = compared(steps(_reading), steps(testing)).waits
    assert {change.status for change in changes} == {"new", "gone"}


def test_two_reads_a_step_instead_of_one_are_a_change() -> None:
    def twice(trace: TraceBuilder, step: int) -> None:
        _reading(trace, step)
        trace.item()

    (change,) = compared(steps(_reading), steps(twice)).waits
    assert (change.count.a, change.count.b) == (1, 2)


def test_runs_with_other_numbers_of_steps_are_compared_per_step() -> None:
    result = compared(steps(_reading, count=3), steps(_reading, count=6))
    assert result.waits == ()
    assert result.unchanged.waits == 1
