"""Where steps begin and end, and how that was found."""

from __future__ import annotations

import numpy as np
import pytest
from findings import only, result_of
from hypothesis import given
from hypothesis import strategies as st
from traces import TraceBuilder

from unstall.errors import UsageError
from unstall.locate.steps import find_steps
from unstall.report.wording import steps_line


def kernels(trace: TraceBuilder, *names: str) -> None:
    for name in names:
        trace.launch(name, 10)


class TestAnnotationOfTheProgramsOwn:
    """Steps that the launches tell, and an annotation around each: it says where they begin and end, and a name."""

    def iterating(self, *, annotated: int, layers: int = 0) -> TraceBuilder:
        """Five steps, some of them annotated; each has layers, annotated too."""
        trace = TraceBuilder()
        for number in range(5):
            with trace.annotation("iteration" if number < annotated else "rest"):
                kernels(trace, "embed")
                for _ in range(layers):
                    with trace.annotation("layer"):
                        kernels(trace, *["gemm"] * 20)
                kernels(trace, "gemm", "relu", "gemm", "loss")
        return trace

    def test_it_is_gone_by(self) -> None:
        steps = result_of(self.iterating(annotated=5)).steps
        assert (steps.found_by, steps.name, steps.count) == ("annotation", "iteration", 5)

    def test_it_is_gone_by_rather_than_by_the_optimizer(self) -> None:
        trace = TraceBuilder()
        for _ in range(3):
            with trace.annotation("iteration"):
                kernels(trace, "gemm", "gemm")
                with trace.optimizer():
                    kernels(trace, "add_")
        steps = result_of(trace).steps
        assert (steps.found_by, steps.name, steps.count) == ("annotation", "iteration", 3)

    def test_one_around_some_steps_only_is_not(self) -> None:
        result = result_of(self.iterating(annotated=4))
        assert (result.steps.found_by, result.steps.count) == ("period", 5)
        assert not any("--step" in note for note in result.integrity.notes)

    def test_one_within_steps_is_a_hint(self) -> None:
        result = result_of(self.iterating(annotated=2, layers=3))
        assert result.steps.found_by == "period"
        assert any("'layer'" in note and "--step layer " in note for note in result.integrity.notes)

    def test_twice_is_too_seldom_for_a_period_and_a_hint(self) -> None:
        trace = TraceBuilder()
        for _ in range(2):
            with trace.annotation("my step"):
                kernels(trace, "gemm", "relu")
        result = result_of(trace)
        assert result.steps.found_by == "whole"
        assert any("--step 'my step' " in note for note in result.integrity.notes)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void cutlass::Kernel2<cutlass_80<float>, 3>(cutlass_80<float>::Params)", "cutlass::Kernel2"),
        ("void at::native::(anonymous namespace)::copy_kernel<int>(int*)", "at::native::copy_kernel"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD"),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(cublasGemvParamsEx<int>)",
            "internal::gemvx::kernel",
        ),
        ("void reduce<512, Sum::run(int)::{lambda(int)#1}::operator()(int) const>(int*)", "reduce"),
        ("std::enable_if<((sizeof (T)) > (4)), void>::type copy<4, (a::kind)1>(T*)", "copy"),
        ("void Kernel<float>::run<&(T::operator<)>(int*)", "Kernel::run"),
        ("add_kernel(float*, int) [clone .kd]", "add_kernel"),
        ("<(<(", "<(<("),
    ],
)
def test_a_launch_that_marks_a_step_goes_by_its_plain_name(kernel: str, name: str) -> None:
    trace = TraceBuilder()
    for _ in range(4):
        kernels(trace, kernel, "gemm", "relu")
    steps = result_of(trace).steps
    assert (steps.found_by, steps.name) == ("period", name)


class TestRecorded:
    """Steps that unstall's own recorder tells apart."""

    def marked(self, marks: str, *, torch_too: bool = False) -> TraceBuilder:
        trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "step_marks": marks})
        for number in range(7, 11):
            with trace.annotation(f"unstall.step#{number}"):
                kernels(trace, "gemm", "relu")
                if torch_too and number % 2:
                    with trace.step():
                        kernels(trace, "softmax")
        return trace

    @pytest.mark.parametrize(
        ("marks", "said"),
        [
            ("optimizer", "found by optimizer steps"),
            ("loader", "found by the batches or items of a loop"),
            ("forward", "found by model calls"),
            ("explicit", "found by unstall.step()"),
        ],
    )
    def test_they_are_steps_and_what_marked_them_is_said(self, marks: str, said: str) -> None:
        result = result_of(self.marked(marks))
        steps = result.steps
        assert (steps.found_by, steps.name, steps.marks, steps.count) == ("annotation", "unstall.step", marks, 4)
        assert steps_line(result.source, result.steps).endswith(said)

    def test_they_are_preferred_to_the_profilers(self) -> None:
        assert result_of(self.marked("loader", torch_too=True)).steps.count == 4

    def test_they_are_no_places(self) -> None:
        assert {line.where.function for line in result_of(self.marked("loader"), step="unstall*").lines} == {None}

    def test_a_file_that_does_not_say_what_marked_them_names_the_annotation(self) -> None:
        result = result_of(self.marked("the moon"))
        assert (result.steps.marks, result.steps.count) == (None, 4)
        assert steps_line(result.source, result.steps).endswith("found by annotation unstall.step")

    def test_pieces_of_time_are_no_steps(self) -> None:
        steps = result_of(self.marked("time")).steps
        assert (steps.found_by, steps.name, steps.marks) == ("period", "gemm", None)


class TestAnnotation:
    def marked(self) -> TraceBuilder:
        trace = TraceBuilder()
        kernels(trace, "warm", "up")
        for _ in range(3):
            with trace.step(), trace.annotation("forward pass"):
                kernels(trace, "gemm")
        return trace

    def test_the_profilers_steps_are_preferred(self) -> None:
        steps = result_of(self.marked()).steps
        assert (steps.found_by, steps.name, steps.count) == ("annotation", "ProfilerStep", 3)

    def test_a_name_given_is_used_instead(self) -> None:
        steps = result_of(self.marked(), step="forward pass").steps
        assert (steps.found_by, steps.name, steps.count) == ("annotation", "forward pass", 3)

    def test_so_is_a_glob(self) -> None:
        assert result_of(self.marked(), step="forw*").steps.count == 3

    def test_a_name_that_is_not_there_is_a_mistake_and_those_that_are_get_listed(self) -> None:
        with pytest.raises(UsageError, match=r"no annotation is called 'backward'; there are: .*'forward pass'"):
            result_of(self.marked(), step="backward")

    def test_the_window_runs_until_the_last_op_that_the_last_step_launched(self) -> None:
        """The annotation ends after 5 µs of launching; the kernel runs for 1,000."""
        trace = TraceBuilder()
        with trace.step():
            call = trace.launch("gemm", 1_000)
        trace.launch("not of this step", 5_000)
        steps = find_steps(trace.timeline())
        assert steps.window[1] - steps.window[0] == call.op_end - 1_000
        assert steps.end[0] < steps.window_end

    def test_annotations_of_the_same_name_within_each_other_are_one_step(self) -> None:
        trace = TraceBuilder()
        for _ in range(2):
            with trace.annotation("train"), trace.annotation("train"):
                kernels(trace, "gemm")
        assert result_of(trace, step="train").steps.count == 2

    def test_steps_that_touch_are_two(self) -> None:
        trace = TraceBuilder(stacks=False)
        for _ in range(2):
            with trace.step():
                kernels(trace, "gemm")
        assert result_of(trace).steps.count == 2

    def test_steps_that_launched_nothing_do_not_count_where_others_did(self) -> None:
        trace = TraceBuilder()
        for launches in (0, 1, 1):
            with trace.step():
                kernels(trace, *launches * ["gemm"])
        assert result_of(trace).steps.count == 2


class TestOptimizer:
    def train(self, steps: int, *, other_first: bool = False) -> TraceBuilder:
        trace = TraceBuilder()
        for step in range(steps):
            kernels(trace, *(["gemm"] if other_first and step == 0 else ["gemm", "relu", "softmax"]))
            with trace.optimizer():
                kernels(trace, "sgd")
        return trace

    def test_each_ends_with_its_optimizers(self) -> None:
        steps = result_of(self.train(3)).steps
        assert (steps.found_by, steps.name, steps.count) == ("optimizer", "Optimizer.step#SGD.step", 3)

    def test_what_comes_before_the_first_is_no_step_if_it_is_much_less(self) -> None:
        assert result_of(self.train(3, other_first=True)).steps.count == 2

    def test_optimizers_that_launched_nothing_are_steps_all_the_same(self) -> None:
        trace = TraceBuilder()
        for _ in range(2):
            with trace.optimizer():
                trace.work(10)
        steps = result_of(trace).steps
        assert (steps.found_by, steps.count) == ("optimizer", 1)
        assert steps.wall_ns > 0

    def loops(self, *loops: tuple[str, int], kernel: str = "gemm") -> TraceBuilder:
        """One loop after the other, each as (class of its optimizer, number of steps)."""
        trace = TraceBuilder()
        for optimizer, steps in loops:
            for _ in range(steps):
                kernels(trace, kernel, "relu", "softmax")
                with trace.optimizer(optimizer):
                    kernels(trace, optimizer.lower())
        return trace

    @pytest.mark.parametrize(
        ("loops", "name", "count"),
        [
            ([("Adam", 30), ("LBFGS", 1)], "Adam", 30),
            ([("LBFGS", 1), ("Adam", 30)], "Adam", 30),
            ([("Adam", 30), ("SGD", 40)], "SGD", 40),
            ([("Adam", 5), ("SGD", 5)], "SGD", 5),
            ([("RMSprop", 20), *[("RMSprop", 5), ("Adam", 1)] * 4], "Adam", 4),
        ],
    )
    def test_of_optimizers_one_after_the_other_the_longest_loop_counts(
        self, loops: list[tuple[str, int]], name: str, count: int
    ) -> None:
        steps = result_of(self.loops(*loops)).steps
        assert (steps.name, steps.count) == (f"Optimizer.step#{name}.step", count)

    def test_the_first_step_of_a_loop_begins_after_the_loop_of_another_optimizer(self) -> None:
        after, alone = (result_of(self.loops(*loops, ("SGD", 9))).steps for loops in ([("Adam", 8)], []))
        assert after.wall_ns / after.count == pytest.approx(alone.wall_ns / alone.count, rel=0.05)

    def test_what_a_second_optimizer_does_after_the_steps_is_told(self) -> None:
        (note,) = result_of(self.loops(("Adam", 6), ("LBFGS", 2))).integrity.notes
        assert note.startswith("not counted: 8 ops")
        assert note.endswith("after the steps, 25.0 % of the device's work in the file")

    def adversarial(self, parts: list[list[str]], steps: int) -> TraceBuilder:
        """Each step several nets in turn, each with an optimizer of one and the same class."""
        trace = TraceBuilder()
        for _ in range(steps):
            for part in parts:
                kernels(trace, *part)
                with trace.optimizer("Adam"):
                    kernels(trace, "adam")
        return trace

    @pytest.mark.parametrize("nets", [1, 2, 3])
    def test_optimizers_of_one_class_step_as_often_in_each_step(self, nets: int) -> None:
        """The nets share a third of their kernels, and the optimizer's."""
        trace = self.adversarial([["shared", f"conv_{net}", f"norm_{net}"] for net in range(nets)], 4)
        steps = result_of(trace).steps
        assert (steps.found_by, steps.count) == ("optimizer", 4)

    def test_one_may_step_several_times_a_step(self) -> None:
        """Five of the critic, one of the generator."""
        critic = ["conv", "relu", "norm", "loss"]
        assert result_of(self.adversarial([*5 * [critic], [*critic, "deconv", "tanh"]], 4)).steps.count == 4

    def test_one_may_step_right_behind_the_other(self) -> None:
        assert result_of(self.adversarial([["gemm", "relu", "softmax"], []], 3)).steps.count == 3

    def test_they_are_told_where_the_recording_begins_within_a_step(self) -> None:
        trace = TraceBuilder()
        for net in [1, *4 * [0, 1]]:
            kernels(trace, f"conv_{net}", f"norm_{net}")
            with trace.optimizer("Adam"):
                kernels(trace, "adam")
        assert result_of(trace).steps.count == 4

    def test_steps_that_take_turns_in_a_little_are_steps(self) -> None:
        """Every second one logs."""
        trace = self.adversarial([19 * ["gemm"], [*19 * ["gemm"], "log"]], 4)
        assert result_of(trace).steps.count == 8

    @pytest.mark.parametrize("every", [2, 3, 4])
    def test_copies_in_every_nth_step_make_no_step_of_n(self, every: int) -> None:
        """A checkpoint copies all weights to the host."""
        trace = TraceBuilder()
        for step in range(9):
            kernels(trace, "gemm", "relu", "softmax")
            with trace.optimizer("Adam"):
                kernels(trace, "adam")
            for _ in range(8 if step % every == 1 else 0):
                trace.copy("DtoH", 10)
                trace.sync()
        assert result_of(trace).steps.count in (8, 9)  # the first launches less than most if every second copies

    def test_without_three_repetitions_each_optimizer_ends_a_step(self) -> None:
        assert result_of(self.adversarial([["conv", "norm"], ["gemm", "relu"]], 2)).steps.count == 4

    def test_nets_of_any_size_in_no_order_are_steps_each(self) -> None:
        parts = [number * [name] for number, name in enumerate("abcdefghi", 1)]
        assert result_of(self.adversarial(parts, 1)).steps.count == 8

    def test_one_alone_says_nothing(self) -> None:
        assert result_of(self.train(1)).steps.found_by == "whole"


@st.composite
def periodic(draw: st.DrawFn) -> tuple[list[str], int]:
    """Kernels of one step, one of which runs once a step alone, and how many steps there are."""
    body = draw(st.lists(st.sampled_from("abcd"), max_size=10))
    body.insert(draw(st.integers(0, len(body))), "once")
    return body, draw(st.integers(max(3, -(-6 // len(body))), 7))


class TestPeriod:
    @given(periodic())
    def test_the_planted_period_is_found(self, plan: tuple[list[str], int]) -> None:
        body, count = plan
        trace = TraceBuilder()
        calls = [trace.launch(name, 10).start for _ in range(count) for name in body]
        steps = find_steps(trace.timeline())
        launches = np.searchsorted(calls, steps.end) - np.searchsorted(calls, steps.start)
        assert (steps.found_by, launches.tolist()) == ("period", count * [len(body)])

    def test_layers_that_repeat_within_a_step_do_not_hide_it(self) -> None:
        trace = TraceBuilder()
        for _ in range(4):
            kernels(trace, "embed", *6 * ["attention", "mlp"], "loss")
        steps = result_of(trace).steps
        assert (steps.found_by, steps.count) == ("period", 4)

    def test_a_step_that_differs_a_little_is_one_all_the_same(self) -> None:
        trace = TraceBuilder()
        for step in range(6):
            kernels(trace, "embed", *10 * ["mlp"], "log" if step == 3 else "loss")
        assert result_of(trace).steps.count == 6

    def test_other_work_around_them_is_left_out(self) -> None:
        trace = TraceBuilder()
        kernels(trace, "set", "up")
        for _ in range(12):
            kernels(trace, "a", "b", "c", "d")
        steps = find_steps(trace.timeline())
        assert steps.found_by == "period"
        assert set(np.diff(steps.start).tolist()) == {4 * 5_000}

    def test_the_wait_that_ends_each_step_ends_the_last_one_too(self) -> None:
        trace = TraceBuilder()
        with trace.frame("train.py", 12, "train"):
            for _ in range(4):
                kernels(trace, "a", "b")
                trace.item()
        assert result_of(trace).steps.found_by == "period"
        assert only(trace, "sync-item").count == 4

    def test_a_step_that_the_recording_cuts_off_is_none(self) -> None:
        trace = TraceBuilder()
        kernels(trace, *4 * ["a", "b", "c", "d"], "a", "b")
        assert result_of(trace).steps.count == 4

    def test_two_repetitions_are_not_enough(self) -> None:
        trace = TraceBuilder()
        kernels(trace, *2 * ["a", "b", "c", "d"])
        assert result_of(trace).steps.found_by == "whole"

    def test_work_without_order_has_none(self) -> None:
        trace = TraceBuilder()
        kernels(trace, *"abbacdabdccbadbcab")
        assert result_of(trace).steps.found_by == "whole"


def test_the_whole_run_is_from_its_first_operator_or_call_to_its_last_op() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.work(500)
        with trace.op("aten::mm"):
            trace.launch("gemm", 100)
        trace.work(500)
    steps = result_of(trace).steps
    assert (steps.found_by, steps.name, steps.count) == ("whole", None, 1)
    assert steps.wall_ns == (1 + 5 + 2 + 100) * 1000


def test_an_empty_recording_has_one_step_of_no_length() -> None:
    steps = result_of(TraceBuilder()).steps
    assert (steps.found_by, steps.count, steps.wall_ns) == ("whole", 1, 0)


class TestWorkQueuedBefore:
    """The host runs ahead of the device: a few steps do not pay for what was queued before them."""

    KERNELS, LONG = 5, 100  # of a step, and us a kernel

    def ahead(self, before: int, steps: int) -> TraceBuilder:
        trace = TraceBuilder()
        for number in range(before + steps):
            with trace.annotation("kept" if number >= before else "let go"):
                kernels_of(trace, self.KERNELS, self.LONG)
        return trace

    @given(before=st.integers(1, 15), steps=st.integers(1, 6))
    def test_a_step_takes_as_long_however_many_came_before(self, before: int, steps: int) -> None:
        result = result_of(self.ahead(before, steps), step="kept")
        assert result.steps.mean_ns == self.KERNELS * self.LONG * 1000
        assert result.accounts.busy_ns.compute == result.steps.wall_ns

    @given(before=st.integers(1, 8), steps=st.integers(2, 4))
    def test_nor_does_the_replay(self, before: int, steps: int) -> None:
        result = result_of(self.ahead(before, steps), step="kept")
        assert result.replay is not None
        assert abs(result.replay.error) < 0.02

    def test_what_was_launched_before_the_recording_is_in_the_queue_too(self) -> None:
        trace = self.ahead(10, 3)
        began = min(event["ts"] for event in trace.events if event["name"] == "kept")
        trace.events[:] = [event for event in trace.events if event["cat"] == "kernel" or event["ts"] >= began]
        assert result_of(trace, step="kept").steps.mean_ns == self.KERNELS * self.LONG * 1000

    def test_what_outlasts_the_first_step_was_in_no_queue_before_it(self) -> None:
        trace = TraceBuilder()
        trace.launch("endless", 10_000, stream=20)
        for _ in range(4):
            with trace.annotation("kept"):
                kernels_of(trace, self.KERNELS, self.LONG)
        assert result_of(trace, step="kept").steps.mean_ns == pytest.approx(self.KERNELS * self.LONG * 1000, rel=0.02)


def kernels_of(trace: TraceBuilder, count: int, us: float) -> None:
    for _ in range(count):
        trace.launch("gemm", us)
