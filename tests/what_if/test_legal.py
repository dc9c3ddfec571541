"""What edits leave as it is, since mending a program would not change it: each a run that once fooled them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from replay.recorded import Trace
from what_if.made import step_us, subject_of

from unstall.diagnose.explain import explain
from unstall.errors import UsageError
from unstall.what_if.edits import parse
from unstall.what_if.undistort import without_pauses


def steps(body: Callable[[Trace, int], object], count: int = 6) -> Trace:
    trace = Trace()
    for number in range(count):
        with trace.step(), trace.frame("train.py", 10, "step"):
            body(trace, number)
    return trace


def test_a_burst_in_every_second_step_is_no_pause() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.work(5_000 if number % 2 else 10)
        trace.launch("gemm", 100)

    program = subject_of(steps(body)).program
    assert without_pauses(program)[1] == 0


def test_a_pause_of_one_step_is_left_out_and_told() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.work(5_000 if number == 3 else 10)
        trace.launch("gemm", 100)

    result = explain(steps(body).timeline()).result
    assert result.replay is not None
    assert result.replay.left_out_ns == 4_990_000
    assert "Pauses that happened only once (4.99 ms) are left out" in result.verdict.text


def test_waiting_for_data_is_no_pause() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.next_batch(5_000 if number == 3 else 10)
        trace.launch("gemm", 100)

    result = explain(steps(body).timeline()).result
    assert result.replay is not None
    assert result.replay.left_out_ns == 0


def test_faster_code_gets_no_data_sooner() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.next_batch(1_000)
        trace.launch("gemm", 100)

    assert step_us(steps(body), "host-speed:inf") >= 1_000


def test_a_graph_does_not_do_away_with_data_loading() -> None:
    def body(trace: Trace, number: int) -> None:
        for _ in range(4):
            trace.next_batch(1_000)
            for _ in range(5):
                trace.launch("gemm", 10)

    assert step_us(steps(body), "graph") >= 4_000


def test_a_download_is_not_taken_from_the_wait_for_it() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.launch("gemm", 500)
        trace.copy("DtoH", 2_000)
        trace.sync()
        trace.work(300)

    trace = steps(body)
    assert step_us(trace, "overlap-copies") == step_us(trace)


def test_an_upload_that_another_stream_waits_for_stays_before_its_event() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.launch("gemm", 1_000, stream=7)
        trace.copy("HtoD", 1_000, stream=7)
        event = trace.record(stream=7)
        trace.stream_wait(event, stream=20)
        trace.launch("gemm", 1_000, stream=20)

    subject = parse("overlap-copies").apply(subject_of(steps(body)))
    assert subject.notes == ("6 of 6 copies stay as they are, as events tie them to their stream",)
    assert np.array_equal(subject.program.ops.stream, subject_of(steps(body)).program.ops.stream)


def test_two_waits_that_gain_only_together_are_planned_together() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.launch("gemm", 900)
        with trace.frame("train.py", 20, "log_loss"):
            trace.item()
        with trace.frame("train.py", 30, "log_norm"):
            trace.item()
        trace.work(600)

    result = explain(steps(body).timeline(), as_recorded=True).result
    assert result.plan is not None
    assert sorted(step.edit.split(":")[:3] for step in result.plan) == [
        ["remove-syncs", "train.py", "20"],
        ["remove-syncs", "train.py", "30"],
    ]
    assert result.plan[-1].step_ns < 1_000_000
    assert all(not finding.harmless for finding in result.findings if finding.rule == "sync-item")


def test_a_faster_kernel_is_no_faster_link() -> None:
    def body(trace: Trace, number: int) -> None:
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1_000)

    assert step_us(steps(body), "kernel-speed:10") == step_us(steps(body))


def test_kernels_of_two_streams_that_took_turns_go_on_to() -> None:
    def body(trace: Trace, number: int) -> None:
        for stream in (7, 20) * 5:
            trace.launch("gemm", 95, stream=stream)
            trace.work(105)

    assert step_us(steps(body), "host-speed:inf") >= 950


def test_a_chain_of_events_over_the_steps_borders_holds_when_they_repeat() -> None:
    for count in (1, 2, 3, 8):
        trace = Trace()
        last = None
        for _ in range(count + 1):
            with trace.step():
                if last is not None:
                    trace.stream_wait(last, stream=7)
                trace.launch("gemm", 1_000, stream=7)
                trace.stream_wait(trace.record(stream=7), stream=20)
                trace.launch("gemm", 1_000, stream=20)
                last = trace.record(stream=20)
        assert step_us(trace) == pytest.approx(2_000, rel=0.2 if count == 1 else 0.01)


@pytest.mark.parametrize("edit", ["host-speed:1e-15", "kernel-speed:1e-12", f"remove-syncs:a.py:{'9' * 5000}"])
def test_absurd_figures_are_refused(edit: str) -> None:
    with pytest.raises(UsageError):
        parse(edit)


@pytest.mark.parametrize("device", [1 << 24, 10**8, 2**31 - 1])
def test_an_absurd_device_number_is_a_device_like_any_other(device: int) -> None:
    def body(trace: Trace, number: int) -> None:
        trace.launch("gemm", 100)

    trace = steps(body)
    for event in trace.events:
        if event["cat"] == "kernel":
            event["args"]["device"] = device
    assert explain(trace.timeline()).result.replay is not None
