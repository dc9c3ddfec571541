"""What repeats may be steps, or layers of one step. A whole run is better than steps that are layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from traces import AUTOGRAD, TraceBuilder

from unstall.locate.steps import Steps, find_steps

LAYER = ["norm", "gemm", "attention", "gemm", "mlp"]


@contextmanager
def module(trace: TraceBuilder, name: str) -> Iterator[None]:
    """A call of one instance of a module, as torch records it."""
    with trace.named_frame(f"nn.Module: {name}"), trace.frame("model.py", 12, "forward"):
        yield


def forward(
    trace: TraceBuilder, layers: int = 36, *, modules: bool = False, operators: bool = False, around: bool = True
) -> None:
    """One forward pass: an embedding, layers, and a head, or only the layers."""
    with module(trace, "Model_0") if modules else nullcontext():
        if around:
            with trace.op("aten::embedding") if operators else nullcontext():
                trace.launch("gather")
        for layer in range(layers):
            with module(trace, f"Layer_{layer}") if modules else nullcontext():
                for kernel in LAYER:
                    with trace.op("aten::mm") if operators else nullcontext():
                        trace.launch(kernel)
        if around:
            trace.launch("norm")
            trace.launch("head")


def steps_of(trace: TraceBuilder) -> Steps:
    return find_steps(trace.timeline())


def found(trace: TraceBuilder) -> tuple[str, int]:
    steps = steps_of(trace)
    return steps.found_by, len(steps)


@pytest.mark.parametrize(
    "known", [{}, {"modules": True}, {"operators": True}, {"modules": True, "operators": True}], ids=str
)
class TestForwardPasses:
    """Of 36 layers each."""

    def test_one_is_the_whole_run(self, known: dict[str, bool]) -> None:
        trace = TraceBuilder()
        forward(trace, **known)
        assert found(trace) == ("whole", 1)

    def test_two_are_no_steps_of_layers(self, known: dict[str, bool]) -> None:
        trace = TraceBuilder()
        for _ in range(2):
            forward(trace, **known)
        assert found(trace) == ("whole", 1)

    def test_five_are_five_steps(self, known: dict[str, bool]) -> None:
        trace = TraceBuilder()
        with trace.frame("infer.py", 3, "main"):
            for _ in range(5):
                forward(trace, **known)
        assert found(trace) == ("period", 5)

    def test_a_prefill_and_tokens_are_steps_of_tokens(self, known: dict[str, bool]) -> None:
        trace = TraceBuilder()
        with trace.frame("generate.py", 3, "generate"):
            for _ in range(100):
                trace.launch("prefill")
            for _ in range(8):
                forward(trace, 12, **known)
                trace.item()
        steps = steps_of(trace)
        # Without modules and operators, a hundred kernels around the steps may be another model.
        assert (steps.found_by, len(steps)) == (("period", 8) if known else ("whole", 1))

    def test_a_window_that_begins_and_ends_within_one_has_no_steps_of_layers(self, known: dict[str, bool]) -> None:
        trace = TraceBuilder()
        for _ in range(3):
            forward(trace, 24, **known)
        timeline = trace.timeline()
        launches = np.flatnonzero(timeline.device.launch >= 0)
        trace.events[:] = _without(trace, launches[:60].tolist() + launches[-60:].tolist())
        assert found(trace)[0] == "whole"


def _without(trace: TraceBuilder, kernels: list[int]) -> list[dict[str, object]]:
    """The events without some kernels and their launches, by their number."""
    dropped = {event["args"]["correlation"] for number, event in enumerate(_kernels(trace)) if number in set(kernels)}
    return [event for event in trace.events if event.get("args", {}).get("correlation") not in dropped]


def _kernels(trace: TraceBuilder) -> list[dict[str, dict[str, int]]]:
    return sorted((event for event in trace.events if event["cat"] == "kernel"), key=lambda event: event["ts"])


class TestOneCallAround:
    """With nothing launched but the layers."""

    def test_layers_of_one_module_are_no_steps(self) -> None:
        trace = TraceBuilder()
        with module(trace, "Model_0"):
            for _ in range(6):
                with module(trace, "Shared_0"):
                    forward(trace, 1, around=False)
        assert found(trace) == ("whole", 1)

    @pytest.mark.parametrize("name", ["Torch-Compiled Region: 0/0", "CompiledFunction", "mylib::decode"])
    def test_layers_of_one_operator_are_no_steps(self, name: str) -> None:
        trace = TraceBuilder()
        with trace.op(name):
            forward(trace, 6, around=False)
        assert found(trace) == ("whole", 1)

    def test_nor_are_those_of_one_annotation_and_a_note_says_what_repeats(self) -> None:
        trace = TraceBuilder()
        with trace.annotation("model_inference"):
            forward(trace, 6, around=False)
        steps = steps_of(trace)
        assert (steps.found_by, steps.repeats) == ("whole", (len(LAYER), 6))

    def test_a_loop_around_models_is_no_such_call(self) -> None:
        trace = TraceBuilder()
        with trace.annotation("benchmark"), trace.frame("bench.py", 3, "main"):
            for _ in range(6):
                with module(trace, "Linear_0"):
                    trace.launch("gemm")
                    trace.launch("bias")
        assert found(trace) == ("period", 6)

    def test_modules_that_count_up_are_layers_whatever_is_around(self) -> None:
        trace = TraceBuilder()
        for layer in range(12):
            with module(trace, f"Layer_{layer}"):
                forward(trace, 1, around=False)
        assert found(trace) == ("whole", 1)

    def test_a_function_called_again_and_again_with_several_in_each_call_tells_of_longer_steps(self) -> None:
        trace = TraceBuilder()
        with trace.frame("train.py", 3, "main"):
            for _ in range(3):
                with trace.frame("train.py", 12, "round"):
                    forward(trace, 8, around=False)
        assert found(trace) == ("whole", 1)

    def test_graphs_in_such_a_function_are_passes_of_a_model(self) -> None:
        trace = TraceBuilder()
        with trace.frame("generate.py", 3, "main"):
            for _ in range(3):
                with trace.frame("generate.py", 12, "generate"):
                    for _ in range(8):
                        trace.launch("upload")
                        trace.graph([10, 10])
        assert found(trace) == ("period", 24)

    def test_waits_at_every_eighth_tell_of_longer_steps(self) -> None:
        trace = TraceBuilder()
        for _ in range(3):
            forward(trace, 8, around=False)
            trace.sync()
        assert found(trace) == ("whole", 1)


class TestTraining:
    """Without an annotation of the optimizer."""

    def step(self, trace: TraceBuilder, layers: int = 4) -> None:
        forward(trace, layers, around=False)
        with trace.on_thread(AUTOGRAD):
            for number in range(layers):
                with trace.backward("MmBackward0", number):
                    trace.launch("gemm_backward")
                    trace.launch("mlp_backward")

    def test_a_loop_of_both_passes_is_steps(self) -> None:
        trace = TraceBuilder()
        with trace.annotation("epoch"):
            for _ in range(5):
                self.step(trace)
                trace.launch("adam")
        assert found(trace) == ("period", 5)

    def test_a_backward_pass_is_no_steps(self) -> None:
        trace = TraceBuilder()
        for number in range(24):
            with trace.backward("MmBackward0", number):
                for kernel in LAYER:
                    trace.launch(kernel)
        assert found(trace) == ("whole", 1)

    def test_micro_batches_before_one_optimizer_are_no_steps(self) -> None:
        trace = TraceBuilder()
        for _ in range(8):
            self.step(trace)
        with trace.optimizer():
            trace.launch("adam")
        assert found(trace)[0] == "whole"

    def test_optimizers_that_step_within_one_backward_pass_are_no_steps(self) -> None:
        trace = TraceBuilder()
        with trace.frame("torch/_tensor.py", 12, "backward"):
            for _ in range(4):
                trace.launch("gemm_backward")
                with trace.optimizer():
                    trace.launch("adam")
        assert steps_of(trace).found_by == "whole"


class TestAround:
    def test_half_of_the_work_outside_means_no_steps(self) -> None:
        trace = TraceBuilder()
        trace.launch("set up", 36 * 5 * 20)
        for _ in range(36):
            forward(trace, 1, around=False)
        assert found(trace) == ("whole", 1)

    def test_copies_around_them_are_no_part_of_a_model(self) -> None:
        trace = TraceBuilder()
        trace.copy("HtoD", 10)
        for _ in range(12):
            forward(trace, 1, around=False)
        trace.copy("DtoH", 10)
        assert found(trace) == ("period", 12)


@examples(20)
@given(
    layers=st.integers(8, 40),
    passes=st.integers(1, 6),
    shift_us=st.integers(0, 10**9),
    renamed=st.permutations(["gather", "head", *sorted(set(LAYER))]),
)
def test_steps_do_not_depend_on_when_they_were_or_how_kernels_are_called(
    layers: int, passes: int, shift_us: int, renamed: list[str]
) -> None:
    trace = TraceBuilder()
    for _ in range(passes):
        forward(trace, layers)
    names = dict(zip(["gather", "head", *sorted(set(LAYER))], renamed, strict=True))
    before = find_steps(trace.timeline())
    events = [event | {"name": names.get(event["name"], event["name"])} for event in trace.events]
    after = find_steps(trace.timeline(events, shift_us=shift_us))
    assert (before.found_by, len(before)) == (("period", passes) if passes > 2 else ("whole", 1))
    assert before.found_by == after.found_by
    assert (before.start - before.start[0]).tolist() == (after.start - after.start[0]).tolist()


def test_copies_alone_are_no_steps() -> None:
    trace = TraceBuilder()
    for _ in range(30):
        trace.copy("HtoD", 100, memory="Pinned", size=1 << 20)
    assert found(trace) == ("whole", 1)


def test_what_only_prints_a_tensor_is_no_step_and_what_also_computes_is() -> None:
    def printing(kernel: str | None) -> TraceBuilder:
        trace = TraceBuilder()
        for _ in range(8):
            with trace.frame("train.py", 12, "main"):
                if kernel is not None:
                    trace.launch(kernel)
                with trace.frame("torch/_tensor_str.py", 300, "_tensor_str"):
                    trace.launch("abs")
                    trace.launch("max")
                    trace.copy("DtoH", 1, memory="Pinned", size=4)
        return trace

    assert found(printing(None)) == ("whole", 1)
    assert found(printing("gemm")) == ("period", 8)
