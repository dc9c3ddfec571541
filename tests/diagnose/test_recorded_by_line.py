"""What a recording of CUDA's calls and of the lines that ran says of a training loop: without operators."""

from __future__ import annotations

import pytest
from report.rendered import as_markdown, as_text
from traces import AUTOGRAD, TraceBuilder

from unstall.diagnose.explain import Diagnosis, explain
from unstall.result import Finding
from unstall.timeline.columns import Timeline

STEPS = 4


def training(*, plain_step_us: int | None = None) -> Timeline:
    """A step takes the host 15 µs a launch: 20 forward, 20 backward on autograd's thread, 10 of the optimizer.

    It reads the loss before the optimizer, and the batch is pageable.
    """
    unstall = {
        "schema": "unstall.recording/1",
        "recorder": "cupti",
        "lines": "exact",
        "step_marks": "optimizer",
        "notes": ["GPU 0 was throttled (sw_power_cap)"],
    } | ({} if plain_step_us is None else {"plain_step_ns": 1000 * plain_step_us})
    trace = TraceBuilder(operators=False, enter_us=0, unstall=unstall)
    with trace.frame("train.py", 60, "<module>"):
        for number in range(STEPS):
            with trace.annotation(f"unstall.step#{number}"):
                step(trace)
    return trace.timeline(trace.events[::-1])  # of slices with the same times the outer one comes first


def step(trace: TraceBuilder) -> None:
    with trace.frame("train.py", 40, "train"):
        trace.copy("HtoD", 50, memory="Pageable", size=500_000)
        trace.sync()
    with trace.frame("train.py", 41, "train"):
        for line in (12, 13):
            with trace.frame("net.py", line, "forward"):
                kernels(trace, f"forward_{line}", 10)
    with (
        trace.frame("train.py", 42, "train"),
        trace.on_thread(AUTOGRAD),
        # The recorder puts the line that waits on the thread that works for it.
        trace.frame("train.py", 60, "<module>"),
        trace.frame("train.py", 42, "train"),
    ):
        kernels(trace, "backward", 20)
    with trace.frame("train.py", 43, "train"):
        trace.copy("DtoH", 1, size=4)
        trace.sync()
        trace.work(20)
    with trace.frame("train.py", 44, "train"):
        kernels(trace, "adam", 10)


def kernels(trace: TraceBuilder, name: str, count: int) -> None:
    for _ in range(count):
        trace.work(10)
        trace.launch(name, 12)


@pytest.fixture(scope="module")
def report() -> Diagnosis:
    return explain(training())


def test_plain_steps_that_differ_are_told_apart() -> None:
    timeline = training(plain_step_us=700)

    def said(before_us: int, after_us: int, given_us: int | None = None) -> str:
        known = (1000 * before_us, 1000 * after_us)
        told = timeline.with_meta(plain_steps_ns=known)
        return " ".join(explain(told, plain_step_ns=given_us and 1000 * given_us).verdict.text.split())

    assert "takes 700 µs, as measured (760 µs before the recording, 640 µs after it)" in said(760, 640)
    assert "takes 700 µs, as measured" in said(705, 695)
    assert "before the recording" not in said(705, 695)
    assert "before the recording" not in said(760, 640, given_us=710)


def of(report: Diagnosis, rule: str) -> Finding:
    (finding,) = (finding for finding in report.findings if finding.rule == rule)
    return finding


@pytest.mark.parametrize(
    ("rule", "file", "line", "function", "count"),
    [
        ("pageable-copy", "train.py", 40, "train", STEPS),
        ("sync-item", "train.py", 43, "train", STEPS),
        ("launch-bound", "train.py", 42, "train", STEPS * 52),
    ],
)
def test_a_finding_is_at_the_line_that_ran(
    report: Diagnosis, rule: str, file: str, line: int, function: str, count: int
) -> None:
    finding = of(report, rule)
    where = finding.where
    assert (where.file, where.line, where.function, where.line_is) == (file, line, function, "exact")
    assert where.op is None
    assert finding.count == count


def test_launches_of_the_backward_pass_are_at_the_line_that_waits_for_them(report: Diagnosis) -> None:
    launches = {(line.where.file, line.where.line): line.launches for line in report.result.lines}
    assert launches == {
        ("train.py", 40): STEPS,
        ("net.py", 12): 10 * STEPS,
        ("net.py", 13): 10 * STEPS,
        ("train.py", 42): 20 * STEPS,
        ("train.py", 43): STEPS,
        ("train.py", 44): 10 * STEPS,
    }


def test_dispatching_is_no_python_and_a_wait_is_a_wait(report: Diagnosis) -> None:
    idle = report.accounts.idle_ns
    assert (idle.python, idle.input, idle.startup) == (0, 0, 0)
    assert report.verdict.bound_by == "copy"  # computing fills 86 %, and the host is nearly as slow
    assert idle.sync > 0
    assert idle.launch > 0


def test_autograd_hands_over_to_its_caller_in_the_replay(report: Diagnosis) -> None:
    assert report.result.replay
    assert abs(report.result.replay.error) < 0.005
    assert any("wait for each other" in phrase for phrase in report.result.replay.inferred)


def test_each_gain_is_of_its_own_line(report: Diagnosis) -> None:
    item = of(report, "sync-item")
    assert item.edit == "remove-syncs:train.py:43"
    assert 0 < (item.gain_ns or 0) < report.result.steps.mean_ns / 10


def test_the_plain_step_time_is_met() -> None:
    replay = explain(training(plain_step_us=790)).result.replay
    assert replay
    assert replay.undistorted_by == "plain step time"
    assert replay.undistorted_mean_step_ns == pytest.approx(790_000, rel=0.01)


@pytest.mark.parametrize("render", [as_text, as_markdown])
def test_a_report_says_how_steps_were_told_apart_and_what_the_recording_met(report: Diagnosis, render: object) -> None:
    assert callable(render)
    text = " ".join(str(render(report.result)).replace("\\", "").split())
    assert f"{STEPS} steps of " in text
    assert "found by optimizer steps" in text
    assert "GPU 0 was throttled (sw_power_cap)" in text
    assert "train.py:43 in train" in text
