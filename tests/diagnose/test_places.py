"""Whose line it is."""

from __future__ import annotations

from findings import only, place, result_of
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.result import LineCost


def line_of(trace: TraceBuilder) -> LineCost:
    """The one line that anything is at."""
    (line,) = result_of(trace).lines
    return line


def test_work_is_at_the_innermost_of_the_users_frames_with_the_next_as_its_caller() -> None:
    trace = TraceBuilder()
    with (
        trace.frame("train.py", 80, "main"),
        trace.frame("torch/nn/modules/module.py", 1500, "_call_impl"),
        trace.frame("model/net.py", 30, "forward"),
        trace.frame("torch/nn/functional.py", 1400, "relu"),
        trace.named_frame("<built-in function relu>"),
        trace.op("aten::relu"),
    ):
        trace.launch("relu", 10)
    where = line_of(trace).where
    assert (where.file, where.line, where.function) == ("model/net.py", 30, "forward")
    assert where.line_is == "def"
    assert where.called_from
    assert (where.called_from.file, where.called_from.line, where.called_from.function) == ("train.py", 80, "main")


def test_the_caller_of_a_stretch_is_that_of_its_function_and_none_that_it_calls() -> None:
    """The first launch is two functions below the stretch's own, which is called from main."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 80, "main"), trace.frame("train.py", 12, "step"):
        with trace.frame("model/net.py", 30, "forward"), trace.frame("model/block.py", 5, "attend"):
            for _ in range(20):
                trace.launch("relu", 3)
        with trace.frame("model/loss.py", 9, "loss"):
            for _ in range(20):
                trace.launch("relu", 3)
    finding = only(trace, "launch-bound")
    assert place(finding) == ("train.py", 12, "step")
    assert finding.where.called_from
    assert (finding.where.called_from.line, finding.where.called_from.function) == (80, "main")


def test_a_function_at_the_bottom_of_the_program_has_no_caller() -> None:
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "step"):
        for line, function in ((30, "encode"), (60, "decode")):
            with trace.frame("model/net.py", line, function):
                for _ in range(20):
                    trace.launch("relu", 3)
    finding = only(trace, "launch-bound")
    assert (place(finding)[2], finding.where.called_from) == ("step", None)


def test_of_several_callers_the_most_common_is_named() -> None:
    trace = TraceBuilder()
    with trace.step():
        for line, function, count in ((80, "warm_up", 1), (90, "train", 3)):
            for _ in range(count):
                with trace.frame("train.py", line, function), trace.frame("model/net.py", 30, "log"):
                    trace.launch("relu", 3)
                    trace.item()
    called_from = only(trace, "sync-item").where.called_from
    assert called_from
    assert called_from.function == "train"


def test_user_globs_narrow_what_counts_as_the_users() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.frame("transformers/trainer.py", 900, "step"):
        trace.launch("gemm", 10)
    assert line_of(trace).where.file == "transformers/trainer.py"
    for glob in ("train.py", "*train.py"):
        (line,) = result_of(trace, user=[glob]).lines
        assert line.where.file == "train.py"


def test_globs_that_the_recording_was_told_count_unless_others_are_given() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.frame("transformers/trainer.py", 900, "step"):
        trace.launch("gemm", 10)
    timeline = trace.timeline()
    told = timeline.with_meta(user=("train.py",))
    files = [explain(told, user=user).result.lines[0].where.file for user in ((), ("transformers/*",))]
    assert files == ["train.py", "transformers/trainer.py"]


def test_a_user_glob_that_matches_no_file_is_noted() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::relu"):
        trace.launch()
    notes = result_of(trace, user=["nosuch/*"]).integrity.notes
    assert notes == ("no recorded file matches --user 'nosuch/*', so places are annotations or operators, not lines",)
    assert result_of(trace, user=["nosuch/*", "train.py"]).integrity.notes == (
        "no recorded file matches --user 'nosuch/*'",
    )
    assert result_of(trace, user=["train.py"]).integrity.notes == ()


def test_a_script_is_the_users_whatever_its_name() -> None:
    """profile.py is in the standard library too, but this one was run as the program."""
    trace = TraceBuilder()
    with trace.frame("profile.py", 1, "<module>"), trace.frame("profile.py", 12, "train"):
        trace.launch("gemm", 10)
    assert (line_of(trace).where.file, line_of(trace).where.function) == ("profile.py", "train")


def test_backward_work_is_at_its_forward_line_and_called_from_who_called_backward() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.frame("model/net.py", 30, "forward"), trace.op("aten::mm", sequence=7):
            trace.launch("gemm", 10)
        with trace.backward("MmBackward0", 7), trace.op("aten::mm"):
            trace.launch("gemm", 40)
    line = line_of(trace)
    assert (line.where.file, line.where.function) == ("model/net.py", "forward")
    assert (line.device_ops, line.device_ns) == (2, 50_000)


def test_the_operator_of_a_wait_is_the_outermost_below_the_users_frame() -> None:
    """An autograd function of the user's: an operator around Python around operators."""
    trace = TraceBuilder()
    with (
        trace.frame("train.py", 12, "train"),
        trace.op("MyFunction"),
        trace.frame("model/net.py", 30, "forward"),
    ):
        trace.launch("gemm", 100)
        trace.item()
    finding = only(trace, "sync-item")
    assert place(finding) == ("model/net.py", 30, "forward")
    assert finding.where.op == "aten::item"


class TestWithoutStacks:
    def test_the_annotation_around_it_is_the_place(self) -> None:
        trace = TraceBuilder(stacks=False)
        with trace.step(), trace.annotation("forward pass"), trace.op("aten::mm"):
            trace.launch("gemm", 10)
        where = line_of(trace).where
        assert (where.file, where.line, where.line_is, where.function) == (None, None, None, "forward pass")

    def test_a_whole_step_says_nothing_so_the_outermost_operator_is(self) -> None:
        trace = TraceBuilder(stacks=False)
        with trace.step(), trace.op("aten::linear"), trace.op("aten::addmm"):
            trace.launch("gemm", 10)
        assert line_of(trace).where.function == "aten::linear"

    def test_so_it_is_for_a_thread_without_frames_beside_one_with_them(self) -> None:
        trace = TraceBuilder()
        with trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 10)
        with trace.on_thread(450), trace.op("aten::linear"):
            trace.launch("gemm", 500)
        costliest = result_of(trace).lines[0].where
        assert (costliest.file, costliest.function) == (None, "aten::linear")

    def test_outside_everything_there_is_no_place(self) -> None:
        trace = TraceBuilder(stacks=False)
        trace.launch("gemm", 10)
        where = line_of(trace).where
        assert (where.file, where.function) == (None, None)

    def test_it_is_said_how_to_record_them(self) -> None:
        trace = TraceBuilder(stacks=False)
        trace.launch("gemm", 10)
        assert any("with_stack=True" in note for note in result_of(trace).integrity.notes)
        with_stacks = TraceBuilder()
        with with_stacks.frame("train.py", 12, "train"):
            with_stacks.launch("gemm", 10)
        assert result_of(with_stacks).integrity.notes == ()
