"""Devices that take turns."""

from __future__ import annotations

import pytest
from findings import found, only, place
from traces import TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.diagnose.verdict import judge


def pipeline(*, in_turn: bool) -> TraceBuilder:
    """Two halves of a model, 1 ms each, on two devices; the second one's waits for the first one's, or does not."""
    trace = TraceBuilder(launch_us=1, devices=("first", "second"))
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(3):
            for device, other in ((0, 1), (1, 0)):
                if in_turn:
                    trace.stream_wait(trace.record(device=other), stream=7, device=device)
                trace.launch("gemm", 1_000, device=device)
    return trace


def test_each_waits_while_the_other_works() -> None:
    """Five of six hand-overs find a device idle for 1 ms, the very first but for the launch: a mean of 2.5 each."""
    finding = only(pipeline(in_turn=True), "serial-devices")
    assert place(finding) == ("train.py", 12, "train")
    assert finding.count == 5
    assert finding.exposed_ns == pytest.approx(2_500_000, rel=0.01)
    assert sum(end - start for start, end in finding.spans) == 2 * finding.exposed_ns


def test_the_verdict_says_so() -> None:
    assert "They take turns: for 99.9 % of the time only one" in judge(analyse(pipeline(in_turn=True).timeline())).text
    assert "They take turns" not in judge(analyse(pipeline(in_turn=False).timeline())).text


def test_devices_that_work_at_the_same_time_are_not_found() -> None:
    assert found(pipeline(in_turn=False), "serial-devices") == []
