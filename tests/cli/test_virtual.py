"""`unstall run --gpu`: the command for it, what is known of the run, and which part of it is explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli.command import Cli
from msgspec.structs import replace
from traces import TraceBuilder, steps_that_prove

from unstall.answers.explain import explain as report_of
from unstall.cli import parse
from unstall.cli._ending import ending
from unstall.cli._virtual_options import command_with_gpu, options_of
from unstall.cli._virtual_part import part_asked_for
from unstall.cli._virtual_run import read_run
from unstall.diagnose.explain import explain
from unstall.document.formats import render
from unstall.launching.launch import Exit
from unstall.locate.steps import find_steps
from unstall.report import short
from unstall.report.wording import steps_line
from unstall.timeline.columns import Faults, HostKind, Timeline
from unstall.virtual.run_place import RunPlace


def _run(steps: int) -> Timeline:
    trace = TraceBuilder()
    for number in range(steps):
        with trace.step():
            trace.launch("gemm", 100 + number)
            trace.sync()
    return trace.timeline()


def test_steps_are_counted_after_those_let_go_by() -> None:
    part = part_asked_for(_run(10), parse(["run", "--warmup", "4", "--steps", "3", "train.py"]))
    assert len(find_steps(part)) == 3


@pytest.mark.parametrize(("ran", "kernels_us"), [(10, [103, 104]), (3, [100, 101])])
def test_the_usual_warm_up_goes_by_before_so_many_steps_unless_there_are_no_more(
    ran: int, kernels_us: list[int]
) -> None:
    part = part_asked_for(_run(ran), parse(["run", "--steps", "2", "train.py"]))
    assert ((part.device.end - part.device.start) // 1000).tolist() == kernels_us


def test_one_step_of_an_optimizer_is_a_step() -> None:
    trace = TraceBuilder()
    for number in range(5):
        trace.launch("gemm", 100 + number)
        with trace.optimizer():
            trace.launch("sgd", 10)
        trace.sync()
    part = part_asked_for(trace.timeline(), parse(["run", "--warmup", "2", "--steps", "1", "train.py"]))
    steps = explain(part).result.steps
    assert (steps.count, steps.marks) == (1, "optimizer")


def test_one_step_of_an_optimizer_is_whole_where_the_device_is_behind() -> None:
    trace = TraceBuilder()
    for _ in range(5):
        trace.launch("gemm", 1000)
        with trace.optimizer():
            trace.launch("sgd", 1000)
    part = part_asked_for(trace.timeline(), parse(["run", "--warmup", "4", "train.py"]))
    launched = part.host.start[part.host.kind == HostKind.LAUNCH]
    steps = find_steps(part)
    assert len(launched) == 2
    assert steps.start[0] <= launched.min() <= launched.max() < steps.end[0]
    assert len(steps) == 1


@pytest.mark.parametrize("asked", [[], ["--steps", "2"]])
def test_where_the_usual_warm_up_is_left_out_it_is_said(asked: list[str]) -> None:
    few, enough = (part_asked_for(_run(ran), parse(["run", *asked, "train.py"])) for ran in (3, 4))
    said = "the run has 3 steps, too few to let the first 3 go by as usual: what a program does once only is in them"
    assert (few.meta.shortfall, enough.meta.shortfall) == (said, None)
    assert explain(few).result.verdict.text.startswith(f"T{said[1:]}. ")


@pytest.mark.parametrize(("ran", "left"), [(3, 3), (4, 2), (5, 2), (6, 3)])
def test_the_usual_warm_up_leaves_two_steps(ran: int, left: int) -> None:
    """Earlier work may end in the first."""
    assert len(find_steps(part_asked_for(_run(ran), parse(["run", "train.py"])))) == left


def test_a_warm_up_of_all_steps_is_told_how_many_there_are_and_what_to_give() -> None:
    part = part_asked_for(_run(10), parse(["run", "--warmup", "12", "train.py"]))
    assert part.meta.shortfall == (
        "this is the whole run, since --warmup 12 leaves none of its 10 steps to explain: give --warmup 9 or less"
    )
    assert len(find_steps(part)) == 10


def test_steps_that_only_repeated_launches_tell_warm_up_too_and_no_operator_is_cut() -> None:
    trace = TraceBuilder()
    trace.launch("set_up", 1_000)
    for _ in range(10):
        with trace.op("aten::to"), trace.op("aten::copy_"):
            trace.launch("copy", 20)
        for kernel in ("conv", "relu", "gemm"):
            with trace.op(f"aten::{kernel}"):
                trace.launch(kernel, 100)
        trace.sync()
    whole = trace.timeline()
    steps = find_steps(whole)
    part = part_asked_for(whole, parse(["run", "train.py"]))
    assert (steps.found_by, find_steps(part).found_by) == ("period", "period")
    assert part.meta.left_out is not None
    assert (part.meta.left_out.warmup, len(find_steps(part))) == (3, len(steps) - 3)
    names = [part.text(name) for name in part.host.name[part.host.kind == HostKind.OP].tolist()]
    assert names[:2] == ["aten::to", "aten::copy_"]


@pytest.mark.parametrize(
    ("asked", "warmup", "later"),
    [([], 3, 0), (["--warmup", "4", "--steps", "2"], 4, 4), (["--warmup", "0", "--steps", "2"], 0, 8)],
)
def test_the_steps_that_are_not_asked_for_are_told_in_the_head_of_the_report(
    asked: list[str], warmup: int, later: int
) -> None:
    result = explain(part_asked_for(_run(10), parse(["run", *asked, "train.py"]))).result
    left_out = result.steps.left_out
    assert left_out is not None
    assert (left_out.warmup, left_out.later, left_out.of) == (warmup, later, 10)
    assert result.steps.count + left_out.count == left_out.of
    said = steps_line(result.source, result.steps)
    assert (f"the first {warmup} (warm-up)" in said, f"{later} after those" in said) == (warmup > 0, later > 0)


def _with_another_loop(launches: int) -> Timeline:
    """Ten training steps of one kernel of 1 ms each, and then a loop of so many kernels."""
    trace = TraceBuilder()
    for _ in range(10):
        with trace.optimizer():
            trace.launch("update", 1_000)
    for _ in range(launches):
        trace.launch("infer", 1_000)
    trace.sync()
    return trace.timeline()


@pytest.mark.parametrize(("launches", "percent", "said", "warned"), [(0, 0, 0, 0), (5, 33, 1, 0), (90, 90, 1, 1)])
def test_how_much_of_the_devices_work_is_in_no_step_is_told(
    launches: int, percent: int, said: bool, warned: bool
) -> None:
    result = explain(part_asked_for(_with_another_loop(launches), parse(["run", "train.py"]))).result
    assert result.steps.left_out is not None
    assert result.steps.left_out.outside_percent == percent
    sentence = f"{percent} % of the device's work in the run is in no step"
    assert (sentence in steps_line(result.source, result.steps)) == said
    assert (sentence in " ".join(render(short.document(result), "text").split())) == warned


def test_steps_left_out_for_proofs_are_remembered_and_no_warm_up_is_missed() -> None:
    timeline = steps_that_prove(*range(3), 5, *range(7, 20), steps=20).timeline()
    part = part_asked_for(timeline, parse(["run", "train.py"]))
    left_out = part.meta.left_out
    assert left_out is not None
    assert (left_out.proving, left_out.apart, left_out.of) == (17, 1, 20)
    assert part.meta.shortfall is None
    text = explain(part).result.verdict.text
    assert text.startswith("These figures are of only 2 steps of 20. Left out: 17 in which unstall.graphed proves ")


def _faulted(timeline: Timeline) -> Timeline:
    """The run, in whose first launch a device failed."""
    text = len(timeline.strings)
    row = {"call": int(np.flatnonzero(timeline.host.kind == HostKind.LAUNCH)[0]), "replay": -1, "noticed": -1}
    row |= {"iteration": 1, "details": text}
    none = Faults.none()
    columns = {f: np.array([row.get(f, 0)], getattr(none, f).dtype) for f in Faults.__struct_fields__}
    return replace(timeline, strings=(*timeline.strings, '{"check":"wrong"}'), faults=Faults(**columns))


@pytest.mark.parametrize("asked", [[], ["--warmup", "4", "--steps", "3"], ["--after", "100"]])
def test_a_run_in_which_a_device_failed_is_shown_whole(asked: list[str]) -> None:
    run = _faulted(_run(10))
    assert part_asked_for(run, parse(["run", *asked, "train.py"])) is run


def test_the_end_of_a_run_in_which_a_device_failed_says_no_more_than_where_to_look() -> None:
    args, report = parse(["run", "--gpu", "h200", "train.py"]), report_of(_faulted(_run(10)))
    said = render(ending(args, Path("train.trace.json.gz"))(report.document()), "text")
    assert "unstall show b1\nunstall open\n\nall of it: unstall explain " in said


def test_blame_changes_nothing_that_a_virtual_gpu_is_asked_for() -> None:
    plain, blaming = (options_of(parse(["run", *more, "--gpu", "h200", "train.py"])) for more in ([], ["--blame"]))
    assert plain == blaming


def test_budgets_of_a_run_in_which_a_device_failed_cannot_be_checked(unstall: Cli, tmp_path: Path) -> None:
    _faulted(_run(3)).save(tmp_path / "run.timeline")
    outcome = unstall("explain", tmp_path / "run.timeline", "--max-idle", "100%", "-q")
    assert outcome.code == 3
    assert "device idle cannot be checked: a device failed" in outcome.err


def _stepless() -> Timeline:
    trace = TraceBuilder()
    trace.launch("gemm", 100)
    trace.sync()
    return trace.timeline()


@pytest.mark.parametrize("asked", [["--warmup", "1"], ["--steps", "3"]])
def test_where_there_are_no_steps_it_is_said_how_to_mark_them(asked: list[str]) -> None:
    part = part_asked_for(_stepless(), parse(["run", *asked, "train.py"]))
    assert part.meta.shortfall == (
        "this is the whole run, since no steps were found in it, which --warmup and --steps count: mark the end of "
        "each by unstall.step(), or ask for seconds (--after, --for)"
    )


def test_seconds_in_which_nothing_ran_are_the_whole_run_instead() -> None:
    run = _run(2)
    part = part_asked_for(run, parse(["run", "--after", "100", "train.py"]))
    assert (len(part.host), len(part.device)) == (len(run.host), len(run.device))
    assert part.meta.shortfall is not None
    assert part.meta.shortfall.startswith("this is the whole run, since nothing ran in the time that --after and --for")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Exit(0), "nothing ran on the virtual GPU: the program did not import torch, or replaced itself by exec"),
        (
            Exit(1),
            "nothing ran on the virtual GPU: the program ended with exit code 1 before it had imported torch",
        ),
        (Exit(139, 11), "nothing is known of the run: SIGSEGV ended the program before it could be kept"),
        (
            Exit(143, 15),
            "nothing is known of the run: SIGTERM ended the program before it could be kept; SIGINT, as by "
            "Ctrl-C, leaves it the time",
        ),
    ],
)
def test_why_nothing_is_known_of_a_run_on_the_virtual_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: Exit, said: str
) -> None:
    assert read_run(RunPlace(str(tmp_path)), ended) is None
    assert capsys.readouterr().err == f"unstall: {said}\n"


def test_a_program_that_was_ended_before_it_used_the_gpu_has_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TraceBuilder().timeline().save(RunPlace(str(tmp_path)).timeline)
    assert read_run(RunPlace(str(tmp_path)), Exit(130, 2)) is None
    assert capsys.readouterr().err == "unstall: nothing ran on the virtual GPU before the program ended\n"
    assert read_run(RunPlace(str(tmp_path)), Exit(0)) is not None


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["-m", "pkg.train", "--shapes"], "-m pkg.train --shapes"),
        (["--shapes", "--lines", "none", "-o", "x.html", "--", "train.py"], "-o x.html -- train.py"),
    ],
)
def test_the_command_for_a_virtual_gpu_leaves_out_what_is_about_a_real_one(words: list[str], command: str) -> None:
    assert command_with_gpu(parse(["run", *words])) == f"unstall run --gpu h200 {command}"


def test_under_torchrun_each_process_has_a_virtual_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    command = "torchrun … -m unstall run --gpu h200:2 train.py --lr 1"
    assert command_with_gpu(parse(["run", "train.py", "--lr", "1"])) == command
