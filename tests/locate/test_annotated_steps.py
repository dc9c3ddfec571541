"""Annotations that mark steps by a number that counts up, and those of programs that are known."""

from __future__ import annotations

import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.locate.steps import find_steps


def annotated(*names: str, kernels: int = 4, between: int = 0) -> TraceBuilder:
    """Work in each of these annotations, of another length each, so that no period tells steps."""
    trace = TraceBuilder()
    for number, name in enumerate(names):
        with trace.annotation(name):
            for kernel in range(kernels + number):
                trace.launch(f"kernel_{number}_{kernel}")
        for _ in range(between):
            trace.launch("sample")
    return trace


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["step 12", "step 13", "step 14"], "step *"),
        (["iter_3", "iter_4"], "iter_*"),
        (["Iteration 99", "Iteration 100", "Iteration 101"], "Iteration *"),
        (["decode[bs=4] 17", "decode[bs=4] 18", "decode[bs=3] 19"], "decode[bs=*] *"),
        (["train/batch-0", "train/batch-2", "train/batch-4"], "train/batch-*"),
        (["global_step7", "global_step8"], "global_step*"),
    ],
)
def test_a_name_with_a_number_that_counts_up_marks_steps(names: list[str], pattern: str) -> None:
    steps = find_steps(annotated(*names).timeline())
    assert (steps.found_by, steps.name, len(steps)) == ("annotation", pattern, len(names))


@pytest.mark.parametrize(
    "names",
    [
        ["layer_0", "layer_1", "layer_2"],
        ["transformer block 0", "transformer block 1"],
        ["micro_step 0", "micro_step 1"],
        ["step 3", "step 3"],
        ["step 1", "step 2", "step 1", "step 2"],  # these count up and begin again
        ["forward step 1", "forward step 2"],
    ],
)
def test_layers_parts_and_numbers_that_do_not_count_up_mark_none(names: list[str]) -> None:
    assert find_steps(annotated(*names).timeline()).found_by == "whole"


def test_another_name_that_counts_up_is_a_hint() -> None:
    steps = find_steps(annotated("phase 1", "phase 2").timeline())
    assert (steps.found_by, steps.hint) == ("whole", "phase *")
    assert any("--step 'phase *' " in note for note in result_of(annotated("phase 1", "phase 2")).integrity.notes)


def test_the_hint_can_be_followed() -> None:
    assert result_of(annotated("phase 1", "phase 2"), step="phase *").steps.count == 2


@pytest.mark.parametrize(("told", "found_by", "count"), [("phase *", "annotation", 2), ("stage *", "whole", 1)])
def test_the_name_that_the_recording_was_told_counts_if_there_is_such_an_annotation(
    told: str, found_by: str, count: int
) -> None:
    timeline = annotated("phase 1", "phase 2").timeline()
    steps = find_steps(timeline.with_meta(step=told))
    assert (steps.found_by, len(steps)) == (found_by, count)


def test_a_name_that_is_given_counts_before_the_one_that_the_recording_was_told() -> None:
    timeline = annotated("phase 1", "phase 2", "stage 1").timeline()
    told = timeline.with_meta(step="phase *")
    assert find_steps(told, "stage *").name == "stage *"


def test_one_around_some_of_the_launches_marks_none() -> None:
    trace = annotated("step 1", "step 2")
    for number in range(10):
        trace.launch(f"rest_{number}")
    assert find_steps(trace.timeline()).found_by == "whole"


def test_batches_are_steps_and_epochs_around_them_are_not() -> None:
    trace = TraceBuilder()
    for epoch in range(2):
        with trace.annotation(f"epoch {epoch}"):
            for batch in range(3 * epoch, 3 * epoch + 3):
                with trace.annotation(f"batch {batch}"):
                    for kernel in range(batch + 3):
                        trace.launch(f"kernel_{batch}_{kernel}")
    assert find_steps(trace.timeline()).name == "batch *"


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (
            ["execute_context_1(64)_generation_0(0)", *2 * ["execute_context_0(0)_generation_1(1)"]],
            "execute_context_*(*)_generation_*(*)",
        ),
        (["step[EXTEND bs=1 toks=64]", "step[DECODE bs=1]", "step[DECODE bs=1]"], "step[*"),
        (3 * ["[pl][profile]run_training_batch"], "[pl][profile]run_training_batch"),
        (3 * ["train iteration"], "train iteration"),
    ],
)
def test_those_of_known_programs_mark_steps_with_what_follows_them(names: list[str], pattern: str) -> None:
    """Sampling follows the annotation, in vLLM and SGLang."""
    steps = find_steps(annotated(*names, between=3).timeline())
    assert (steps.found_by, steps.name, len(steps)) == ("annotation", pattern, len(names))
    assert steps.end[:-1].tolist() == steps.start[1:].tolist()


def test_they_are_no_places() -> None:
    trace = TraceBuilder(stacks=False)
    for tokens in (64, 1, 1):
        with trace.annotation(f"step[DECODE bs={tokens}]"), trace.op("aten::mm"):
            trace.launch("gemm")
    assert {line.where.function for line in result_of(trace).lines} == {"aten::mm"}
