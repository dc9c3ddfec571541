"""Waits that came, went or changed."""

from __future__ import annotations

from changes.runs import compared, launching, recorded, steps
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


def _uploading_and_reading(trace: TraceBuilder, step: int) -> None:
    """A copy that blocks in its call and in the wait for it, then a read of one value, on a line each."""
    launching(100)(trace, step)
    with trace.frame("train.py", 11, "train"), trace.op("aten::to"):
        trace.copy("HtoD", 50, memory="Pageable")
        trace.sync()
    with trace.frame("train.py", 12, "train"):
        trace.item()


def test_without_operators_a_copy_and_the_wait_for_it_are_one_wait() -> None:
    changes = compared(recorded(_uploading_and_reading), recorded(launching(100))).waits
    assert {(change.where_a.line, change.where_a.op) for change in changes if change.where_a} == {
        (11, "cudaMemcpyAsync"),
        (12, "cudaMemcpyAsync"),
    }
    assert [(change.status, change.count.a, change.count.b) for change in changes] == [("gone", 1, 0), ("gone", 1, 0)]


def test_a_wait_of_its_own_and_one_for_a_copy_are_two_at_one_line() -> None:
    def synchronizing(trace: TraceBuilder, step: int) -> None:
        launching(100)(trace, step)
        trace.sync()

    def reading(trace: TraceBuilder, step: int) -> None:
        launching(100)(trace, step)
        trace.copy("DtoH", 1, size=4)
        trace.sync()

    changes = compared(recorded(synchronizing), recorded(reading)).waits
    assert {(change.status, (change.where_a or change.where_b).op) for change in changes} == {  # type: ignore[union-attr]
        ("gone", "cudaStreamSynchronize"),
        ("new", "cudaMemcpyAsync"),
    }


def test_waits_are_the_same_at_the_same_line_though_one_recorder_knows_no_operators() -> None:
    a, b = recorded(_uploading_and_reading), recorded(_uploading_and_reading, recorder="torch")
    changes = compared(a, b).waits
    assert {change.status for change in changes} <= {"changed"}
    assert all(change.count.same for change in changes)
