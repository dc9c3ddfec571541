"""Notes on steps: what is not counted has its size, and what repeats but may be layers is told of."""

from __future__ import annotations

from findings import result_of
from traces import TraceBuilder


def notes(trace: TraceBuilder) -> list[str]:
    return [note for note in result_of(trace).integrity.notes if "not counted" in note or "repeat" in note]


def run(before: int, after: int) -> TraceBuilder:
    """So many ops of 1 ms before and after three steps of 2 ms."""
    trace = TraceBuilder()
    for number in range(before):
        trace.launch(f"before_{number}", 1_000)
    trace.sync()
    for _ in range(3):
        with trace.step():
            trace.launch("gemm", 2_000)
    trace.sync()
    for number in range(after):
        trace.launch(f"after_{number}", 1_000)
    return trace


def test_work_outside_of_the_steps_is_told_with_its_size() -> None:
    assert notes(run(1, 3)) == [
        "not counted: 1 op (1.00 ms of device work) before the steps and 3 ops (3.00 ms of device work) after the "
        "steps, 40.0 % of the device's work in the file"
    ]
    assert notes(run(4, 0)) == [
        "not counted: 4 ops (4.00 ms of device work) before the steps, 40.0 % of the device's work in the file"
    ]


def test_steps_that_only_the_period_tells_are_to_be_marked_before_anything_is_mended() -> None:
    def period(**about: str) -> list[str]:
        trace = TraceBuilder(unstall={"schema": "unstall.recording/1", **about} if about else None)
        for _ in range(6):
            trace.copy("HtoD", 10)
            trace.launch("gemm", 100)
            trace.launch("relu", 10)
        return [note for note in result_of(trace).integrity.notes if "only the period" in note]

    (of_any,) = period()
    assert "before you mend anything, put prof.step() at the end of each step and record again" in of_any
    (of_ours,) = period(recorder="cupti", lines="exact")
    assert "put unstall.step() at the end of each step" in of_ours


def test_a_little_is_not() -> None:
    trace = run(0, 0)
    trace.launch("rest", 100)
    assert notes(trace) == []


def test_nor_is_the_step_that_the_recorder_records_before_its_window() -> None:
    trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "step_marks": "loader"})
    trace.launch("before", 1_000)
    trace.sync()
    for number in range(3):
        with trace.annotation(f"unstall.step#{number}"):
            trace.launch("gemm", 1_000)
    assert notes(trace) == []


def test_launches_that_repeat_but_may_be_layers_are_told_of() -> None:
    trace = TraceBuilder()
    for kernel in ("embedding", *12 * ["norm", "gemm", "mlp"], "head"):
        trace.launch(kernel)
    assert notes(trace) == [
        "the same 3 launches repeat 12 times: they may be steps, or layers of one step, so the whole run counts as "
        "one step; an annotation around each step (--step NAME), or unstall.step(), tells which they are"
    ]
