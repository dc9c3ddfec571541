"""Kernels and lines that came, went or changed."""

from __future__ import annotations

from changes.runs import compared, launching, steps
from traces import TraceBuilder


def test_a_kernel_under_another_name_is_gone_and_new() -> None:
    changes = compared(steps(launching(100, kernel="old")), steps(launching(100, kernel="fused"))).kernels
    assert {(change.status, change.name) for change in changes} == {("gone", "old"), ("new", "fused")}


def test_a_kernel_that_takes_longer_is_changed_by_so_much_per_step() -> None:
    (change,) = compared(steps(launching(100), count=3), steps(launching(150), count=5)).kernels
    assert (change.status, change.device_ns.a, change.device_ns.b) == ("changed", 100_000, 150_000)
    assert (change.count.a, change.count.b) == (1, 1)


def test_a_kernel_that_another_line_launches_is_the_same_kernel() -> None:
    def deeper(trace: TraceBuilder, step: int) -> None:
        with trace.frame("net.py", 5, "forward"):
            launching(100)(trace, step)

    result = compared(steps(launching(100)), steps(deeper))
    assert result.kernels == ()
    assert {change.status for change in result.lines} == {"new", "gone"}


def test_a_kernel_whose_time_varies_from_step_to_step_is_no_change_within_that() -> None:
    def varying(by: float) -> TraceBuilder:
        return steps(lambda trace, step: launching(100 + 80 * (step % 2) + by)(trace, step))

    result = compared(varying(0), varying(5))
    assert result.kernels == ()
    assert result.unchanged.kernels == 1


def test_a_function_that_moved_down_in_its_file_is_the_same_line() -> None:
    def at(line: int, device_us: float) -> TraceBuilder:
        def body(trace: TraceBuilder, step: int) -> None:
            with trace.frame("net.py", line, "forward"):
                launching(device_us)(trace, step)

        return steps(body)

    changes = [change for change in compared(at(12, 100), at(14, 200)).lines if change.device_ns.change]
    (change,) = changes
    assert change.where_a
    assert change.where_b
    assert (change.status, change.where_a.line, change.where_b.line) == ("changed", 12, 14)
    assert change.device_ns.change == 100_000


def test_without_stacks_in_one_run_operators_are_compared() -> None:
    result = compared(steps(launching(100)), steps(launching(300), stacks=False))
    assert result.matched_by == "operator"
    assert result.caveats[0].code == "stacks"
    (change,) = [change for change in result.lines if change.device_ns.change]
    assert change.where_a
    assert change.where_b
    assert change.where_a.function == change.where_b.function == "aten::mm"
