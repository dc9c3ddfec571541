"""A graph of a model's forward holds its backward pass too, and what autograd's engine does in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from findings import only
from traces import AUTOGRAD, TraceBuilder
from what_if.made import edited, step_us, subject_of

from unstall.timeline.columns import HostKind
from unstall.what_if.place import parse_function

MODEL = "net.py:Net.forward"


@contextmanager
def module_call(trace: TraceBuilder) -> Iterator[None]:
    with trace.frame("torch/nn/modules/module.py", 1787, "_call_impl"):
        yield


def small(trace: TraceBuilder, name: str, count: int) -> None:
    for number in range(count):
        with trace.op("aten::mul"):
            trace.launch(f"{name}_{number}", 2)


def one_batch(trace: TraceBuilder, first: int, between: int, leaf_us: float, *, leaf_adds: bool, sets: bool) -> None:
    sequences = range(first, first + 4)
    with module_call(trace), trace.frame("net.py", 3, "Net.forward"):
        for sequence in sequences:
            with trace.op("aten::mm", sequence=sequence):
                trace.launch("gemm", 2)
                trace.launch("gemm", 2)
    for sequence in reversed(sequences):
        with trace.backward("MmBackward0", sequence):
            trace.launch("gemm", 2)
        with trace.on_thread(AUTOGRAD):
            for _ in range(between):
                with trace.op("aten::add_"):
                    if sets:
                        trace.memset()
                    trace.launch("add", 2)
            with trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                trace.work(leaf_us)
                if leaf_adds:
                    trace.launch("add", 2)
    small(trace, "rest", 4)


def training(
    *,
    between: int = 0,
    leaf_us: float = 0,
    leaf_adds: bool = False,
    sets: bool = False,
    steps: int = 4,
    batches: int = 1,
    trainer: str = "transformers/trainer.py",
) -> TraceBuilder:
    """A trainer's step uploads `batches` batches, one after the other, and for each of them calls a model of four
    operators, their backward pass, and launches of its own.

    In the backward pass, `between` launches of no node stand between the nodes. A node that adds to `.grad` takes
    `leaf_us`, and launches a kernel if `leaf_adds` is True. If `sets` is True, memory is set before each launch of no
    node.
    """
    trace = TraceBuilder(launch_us=20)
    with trace.frame("main.py", 5, "<module>"), trace.frame(trainer, 10, "train"):
        for step in range(steps):
            with trace.step(), trace.frame(trainer, 20, "training_step"):
                for batch in range(batches):
                    if batches > 1:
                        with trace.op("aten::to"):
                            trace.copy("HtoD", 2, memory="Pinned")
                    one_batch(trace, 100 * (batches * step + batch), between, leaf_us, leaf_adds=leaf_adds, sets=sets)
    return trace


def launches_at(trace: TraceBuilder, function: str) -> int:
    subject = subject_of(trace)
    rows = parse_function(function).chosen(subject.places)
    return int(np.count_nonzero(rows & (subject.timeline.host.kind == HostKind.LAUNCH)))


def test_sums_of_gradients_between_two_nodes_are_the_models() -> None:
    """Of three between each two of four nodes; those after the last node may be of anything."""
    assert launches_at(training(between=3, steps=1), MODEL) == 4 * 2 + 4 + 3 * 3


@pytest.mark.parametrize("sets", [False, True])
def test_so_they_do_not_take_the_backward_pass_apart(sets: bool) -> None:
    made = edited(subject_of(training(between=3, sets=sets, steps=4)), f"graph:{MODEL}")
    assert len(made.graphs) == 4  # one a step


def test_gradients_that_are_added_to_grad_take_their_time_beside_the_graph() -> None:
    quick, slow = training(), training(leaf_us=50)
    gained = step_us(slow, f"graph:{MODEL}") - step_us(quick, f"graph:{MODEL}")
    assert 3 * 50 <= gained <= 4 * 50 + 1


def test_a_kernel_that_adds_to_grad_does_not_take_the_backward_pass_apart() -> None:
    made = edited(subject_of(training(leaf_adds=True)), f"graph:{MODEL}")
    assert len(made.graphs) == 4  # one a step
    assert made.notes == ()


def test_the_host_still_launches_each_kernel_that_adds_to_grad() -> None:
    adds, does_not = (training(leaf_adds=each) for each in (True, False))
    # The last one comes behind the graph. Each launch takes 20 µs of the host, which is late in all of this.
    gained = step_us(adds, f"graph:{MODEL}") - step_us(does_not, f"graph:{MODEL}")
    assert gained == pytest.approx(4 * 20, rel=0.1)


def test_a_model_that_a_step_calls_for_several_batches_is_one_graph_for_each_call() -> None:
    made = edited(subject_of(training(leaf_adds=True, batches=3)), f"graph:{MODEL}")
    assert len(made.graphs) == 4 * 3
    assert made.notes == ()


def test_a_step_of_several_batches_is_cut_by_each_upload() -> None:
    made = edited(subject_of(training(batches=3, trainer="train.py")), "graph:train.py:training_step")
    assert [note for note in made.notes if "This needs 3 graphs a step" in note and "after each upload" in note]


def test_what_a_trainer_does_around_the_model_is_no_part_of_the_promised_graph() -> None:
    assert only(training(), "launch-bound").edit == f"graph:{MODEL}"


def test_what_the_users_own_loop_does_around_the_model_is() -> None:
    finding = only(training(trainer="train.py"), "launch-bound")
    assert finding.edit == "graph:train.py:training_step"


def test_without_operators_the_backward_pass_is_of_the_model_that_ran_before_it() -> None:
    trace = TraceBuilder(launch_us=20)
    with trace.frame("train.py", 10, "train"), trace.step():
        for name in ("One", "Other"):
            with module_call(trace), trace.frame("net.py", 3, f"{name}.forward"):
                trace.launch("gemm", 2)
            with trace.on_thread(AUTOGRAD), ExitStack() as frames:
                frames.enter_context(trace.frame("train.py", 12, "train"))
                frames.enter_context(trace.frame("torch/_tensor.py", 600, "backward"))
                for _ in range(3 if name == "One" else 5):
                    trace.launch("gemm", 2)
    assert launches_at(trace, "net.py:One.forward") == 1 + 3
    assert launches_at(trace, "net.py:Other.forward") == 1 + 5
