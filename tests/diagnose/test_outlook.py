"""What is said of the replay that predictions are made of."""

from __future__ import annotations

from recordings import recording
from traces import TraceBuilder

from unstall import explain


def training() -> tuple[TraceBuilder, int]:
    """Steps that begin while the device is busy with a kernel, and the index of the first event after that one."""
    trace = TraceBuilder()
    trace.launch(device_us=5_000)
    first = len(trace.events)
    for _ in range(4):
        with trace.step():
            for _ in range(3):
                trace.launch(device_us=20)
    return trace, first


def test_a_replay_that_gives_the_measured_time_is_not_mentioned() -> None:
    trace, _ = training()
    report = explain(trace.timeline())
    assert report.result.replay
    assert abs(report.result.replay.error) < 0.01
    assert "In the replay of the unchanged run" not in report.result.verdict.text


def test_a_replay_that_is_off_is_said_before_all_predictions() -> None:
    """What the device was busy with is not in the file, so that nothing says why the first step began so late."""
    trace, first = training()
    report = explain(trace.timeline(trace.events[first:]))
    assert report.result.replay
    assert report.result.replay.error < -0.5
    said = report.result.verdict.text
    assert said.startswith("In the replay of the unchanged run a step takes 6")
    assert "no gain is promised" in said
    assert report.result.plan is None
    assert report.result.verdict.if_free is None
    assert {finding.gain_ns for finding in report.result.findings} <= {None}


def test_what_is_within_the_replays_error_is_not_said_to_be_of_no_help() -> None:
    """The first of four steps began 100 µs late, for no reason in the file."""
    trace = TraceBuilder()
    trace.launch(device_us=150)
    first = len(trace.events)
    for _ in range(4):
        with trace.step():
            for _ in range(6):
                trace.launch(device_us=40)
    whole, cut = (explain(trace.timeline(trace.events[since:])).result for since in (0, first))
    assert "Faster host code (C++, a faster CPU) would not help: it would gain nothing." in whole.verdict.text
    assert cut.replay
    error = f"{100 * abs(cut.replay.error):.1f} %"
    assert (
        f"Faster host code (C++, a faster CPU) may or may not help: it would gain at most {error}" in cut.verdict.text
    )


def test_of_a_run_without_steps_nothing_is_said_of_a_step() -> None:
    trace = TraceBuilder()
    for _ in range(2):
        trace.launch("gemm", 300)
        trace.work(2_000)
        trace.item()
    report = explain(trace.timeline())
    assert "the run would take" in report.result.verdict.text
    assert "gain: time the run saves if only this is fixed" in " ".join(str(report).split())
    assert "a step" not in str(report)


def test_a_verdict_that_hangs_on_the_estimated_overhead_says_what_else_it_may_be() -> None:
    """Its step was measured to be 38.5 ms without recording, and computing limits it then; the estimate is 51.1 ms."""
    timeline = recording("resnet50_pageable_item_nan")
    guessed, known = explain(timeline).result.verdict, explain(timeline, plain_step_ns=38_470_000).result.verdict
    assert (guessed.bound_by, guessed.or_bound_by) == ("launch", "device")
    assert "The verdict depends on how much recording costs, which is an estimate." in guessed.text
    assert (known.bound_by, known.or_bound_by) == ("device", None)
