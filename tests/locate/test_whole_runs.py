"""A run without steps is one step: from when the device has finished earlier work to when it has finished its own."""

from __future__ import annotations

import pytest
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.locate.steps import Steps, find_steps
from unstall.timeline.columns import Timeline


def cut(*, kernels: int = 40, beside: bool = False, earlier_us: float = 8_000, works: float = 0) -> Timeline:
    """A pass that the host launched while the device still ran the pass before, which the file does not have.

    `beside`: the first launch is on a stream that is free, and after the second one the host waits for the device.
    `works`: for so long, in µs, the host works before it launches.
    """
    trace = TraceBuilder(stacks=False)
    trace.launch("pass before", earlier_us)
    begun = len(trace.events)
    if beside:
        trace.launch("index", 2, stream=20)
    with trace.op("aten::where"):
        trace.work(works)
    for kernel in range(kernels):
        if beside and kernel == 1:
            trace.sync(stream=7)
        with trace.op(f"aten::op{kernel}"):
            trace.launch(f"gemm{kernel}", 100)
    return trace.timeline(trace.events[begun:])


def found(timeline: Timeline) -> Steps:
    steps = find_steps(timeline)
    assert steps.found_by == "whole"
    return steps


@pytest.mark.parametrize("beside", [False, True])
def test_it_begins_when_the_device_has_finished_work_that_the_file_does_not_have(beside: bool) -> None:
    timeline = cut(beside=beside)
    gemm = [row for row in range(len(timeline.device)) if timeline.strings[timeline.device.name[row]] == "gemm0"]
    assert found(timeline).window_start == timeline.device.start[gemm[0]]


def test_it_begins_with_the_host_if_the_device_was_idle() -> None:
    timeline = cut(earlier_us=1)
    assert found(timeline).window_start == timeline.host.start.min()


def test_it_begins_with_the_host_if_that_worked_for_most_of_the_time_before() -> None:
    """What the host takes to get so far is the run's, even if the device could not have begun at once."""
    timeline = cut(works=20_000, earlier_us=22_000)
    assert found(timeline).window_start == timeline.host.start.min()


def test_the_hosts_part_ends_with_its_last_event_though_the_device_goes_on() -> None:
    timeline = cut()
    steps = found(timeline)
    assert (steps.end[0], steps.window_end) == (timeline.host.end.max(), timeline.device.end.max())


def test_what_the_device_did_before_is_not_what_the_host_takes() -> None:
    """The host was done long before the device began: it neither works nor waits until the device ends."""
    report = explain(cut())
    assert report.result.verdict.bound_by == "device"
    assert report.result.verdict.if_free is not None
    assert report.result.verdict.if_free["host"] < report.result.steps.mean_ns // 10
    assert any("busy with work from before the recording" in note for note in report.result.integrity.notes)
