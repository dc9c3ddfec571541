"""What the recordings do not let one compare."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from changes.runs import compared, launching, recorded, steps
from traces import TraceBuilder

from unstall.changes.result import DiffResult


def _texts(result: DiffResult, code: str) -> list[str]:
    return [caveat.text for caveat in result.caveats if caveat.code == code]


def _optimizing(name: str) -> TraceBuilder:
    """Steps that only the optimizer tells apart."""
    trace = TraceBuilder()
    for number in range(4):
        with trace.frame("train.py", 10, "train"):
            launching(100)(trace, number)
            with trace.optimizer(name):
                trace.launch("adam", 10)
    return trace


def test_recorders_that_differ_are_named() -> None:
    (text,) = _texts(compared(recorded(launching(100)), recorded(launching(100), recorder="torch")), "recorded")
    assert text.startswith("A was recorded by unstall's recorder cupti, B by unstall's recorder torch: ")
    assert text.endswith("Only one run has operators: waits are matched by place alone.")


def test_a_profile_of_torchs_own_is_another_recorder_with_operators_too() -> None:
    (text,) = _texts(compared(steps(launching(100)), recorded(launching(100), recorder="torch")), "recorded")
    assert text.startswith("A was recorded by torch.profiler or another tool, B by unstall's recorder torch: ")
    assert "Operators" not in text


def test_two_runs_of_one_recorder_have_no_caveat() -> None:
    assert compared(recorded(launching(100)), recorded(launching(300))).caveats == ()


def test_that_one_run_is_simulated_is_said_first() -> None:
    simulated = recorded(launching(100), recorder="virtual", known_error="a step within 9 %")
    first, *others = compared(recorded(launching(100), recorder="torch"), simulated).caveats
    assert first.text == (
        "B is simulated, A was recorded: a difference in time may come from the prediction, or from the recorder, "
        "which slows only the host of A. Known error: a step within 9 %."
    )
    assert not any("recorder" in caveat.text for caveat in others)


def test_operators_that_only_a_simulated_run_knows_are_said() -> None:
    result = compared(recorded(launching(100), recorder="virtual"), recorded(launching(100)))
    assert _texts(result, "recorded") == ["Only one run has operators: waits are matched by place alone."]


def test_two_simulated_runs_are_predictions_and_know_of_no_recorder() -> None:
    errors = "a step within 9 %", "not compared with a real run"
    runs = [
        recorded(launching(us), recorder="virtual", known_error=of) for us, of in zip((900, 100), errors, strict=True)
    ]
    result = compared(*runs)
    assert [caveat.text for caveat in result.caveats] == [
        f"Both runs are simulated: their times are predictions. Known error: {'; '.join(errors)}."
    ]
    assert "record" not in result.summary.text


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ("loader", "the batches or items of a loop"),
        ("forward", "model calls"),
        ("explicit", "unstall.step()"),
    ],
)
def test_steps_that_the_recorder_told_apart_by_other_marks_may_be_other_work(marks: str, words: str) -> None:
    (text,) = _texts(compared(recorded(launching(100)), recorded(launching(100), marks=marks)), "steps")
    assert text.startswith(f"Steps were found in different ways: in A by the optimizer step, in B by {words}. ")


def _layers(times: int) -> Callable[[TraceBuilder, int], object]:
    """A step of so many layers, of two kernels each."""

    def body(trace: TraceBuilder, step: int) -> None:
        for _ in range(times):
            launching(100)(trace, step)
            launching(50, kernel="relu")(trace, step)

    return body


def test_steps_told_apart_by_other_marks_are_compared_where_they_run_the_same_kernels_as_often() -> None:
    result = compared(recorded(_layers(3)), recorded(_layers(3), marks="explicit", count=7))
    (text,) = _texts(result, "steps")
    assert text.endswith(
        "Of 2 kernels that both run, 2 run as often in a step of A as in one of B: they are treated as the same work."
    )
    assert result.step_ns


def test_of_steps_told_apart_by_other_marks_that_are_other_work_nothing_is_compared() -> None:
    result = compared(recorded(_layers(5)), recorded(_layers(2), marks="forward", count=64))
    (text,) = _texts(result, "steps")
    assert "Of 2 kernels that both run, 0 run as often in a step of A as in one of B, so nothing is compared." in text
    assert "Put unstall.step() at the end of each step in both programs" in text
    assert result.step_ns is None
    assert (result.kernels, result.lines, result.accounts, result.launches) == ((), (), (), None)
    assert (result.summary.faster, result.summary.ratio) == (None, None)


def test_of_steps_told_apart_by_other_marks_with_no_kernel_in_common_nothing_is_compared() -> None:
    def elsewhere(trace: TraceBuilder, step: int) -> None:
        with trace.frame("fused.py", 3, "fused"):
            launching(100, kernel="fused")(trace, step)

    result = compared(recorded(launching(100)), recorded(elsewhere, marks="explicit"))
    (text,) = _texts(result, "steps")
    assert "No kernel runs in both to show whether a step is the same work, so nothing is compared." in text
    assert result.step_ns is None


def test_other_work_by_the_same_mark_is_compared() -> None:
    assert compared(recorded(_layers(16)), recorded(_layers(1))).step_ns


def test_an_optimizer_step_is_one_whoever_saw_it() -> None:
    assert _texts(compared(recorded(launching(100)), _optimizing("SGD")), "steps") == []


def test_another_optimizer_is_another_mark() -> None:
    (text,) = _texts(compared(_optimizing("SGD"), _optimizing("AdamW")), "steps")
    assert "in A by the optimizer step SGD.step, in B by the optimizer step A" in text


def test_an_annotation_of_the_users_is_another_mark_than_the_recorders() -> None:
    (text,) = _texts(compared(steps(launching(100)), recorded(launching(100))), "steps")
    assert "in A by annotation ProfilerStep, in B by the optimizer step" in text
