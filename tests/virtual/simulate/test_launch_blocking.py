"""CUDA_LAUNCH_BLOCKING=1: each launch waits until its work is done."""

from __future__ import annotations

import pytest
from virtual.simulate.logs import HOST, LIMITS, MIB, Log
from virtual.simulate.runs import begin, calls, ops

from unstall.diagnose.explain import explain
from unstall.timeline.columns import HostKind, Timeline
from unstall.virtual.log import CopyFlag, LogCode

SERIAL = "CUDA_LAUNCH_BLOCKING"
CAPTURING = 3


def test_a_loop_of_kernels_is_serial_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERIAL, "1")
    log, simulator = begin()
    for _ in range(3):
        log.launch(50_000)
    each = HOST.launch + LIMITS.launch_latency + 50_000 + LIMITS.wake_latency
    assert simulator.now_ns() == 3 * each + HOST.clock_read
    timeline = simulator.timeline()
    assert calls(timeline) == [("cudaLaunchKernel", row * each, (row + 1) * each) for row in range(3)]
    assert [end for _, _, end in ops(timeline)] == [(row + 1) * each - LIMITS.wake_latency for row in range(3)]


@pytest.mark.parametrize("value", ["0", "", None])
def test_without_it_the_host_runs_ahead(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERIAL, raising=False)
    if value is not None:
        monkeypatch.setenv(SERIAL, value)
    log, simulator = begin()
    for _ in range(3):
        log.launch(50_000)
    assert simulator.now_ns() == 3 * HOST.launch + HOST.clock_read


def test_two_streams_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERIAL, "1")
    log, simulator = begin()
    log.launch(5_000)
    log.launch(5_000, stream=3)
    first, second = ops(simulator.timeline())
    assert second[1] > first[2] + LIMITS.wake_latency


def test_the_launch_of_a_graph_waits_and_its_capture_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERIAL, "1")
    log, simulator = begin()
    log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=CAPTURING)
    for _ in range(3):
        log.launch(20_000, stream=CAPTURING)
    log.write(LogCode.CAPTURE_END, 1, stream=CAPTURING)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    timeline = simulator.timeline()
    (launch,) = calls(timeline, HostKind.GRAPH_LAUNCH)
    assert launch[1] == 3 * HOST.capture
    assert launch[2] == max(end for _, _, end in ops(timeline)) + LIMITS.wake_latency


def test_a_copy_from_pinned_memory_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERIAL, "1")
    log, simulator = begin()
    log.copy(MIB, CopyFlag.HOST_TO_DEVICE | CopyFlag.PINNED | CopyFlag.NON_BLOCKING)
    ((_, _, end),) = ops(simulator.timeline())
    assert simulator.now_ns() == end + LIMITS.wake_latency + HOST.clock_read


def test_cuda_reads_it_once_as_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERIAL, raising=False)
    log, simulator = begin()
    monkeypatch.setenv(SERIAL, "1")
    simulator.cuda_begins()
    monkeypatch.delenv(SERIAL)
    log.launch(50_000)
    assert simulator.now_ns() > 50_000


def _steps(log: Log) -> None:
    for _ in range(5):
        with log.mark("step"):
            for _ in range(20):
                log.launch(30_000)


def _timeline(value: str, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    monkeypatch.setenv(SERIAL, value)
    log, simulator = begin()
    _steps(log)
    return simulator.timeline()


def test_a_report_says_so_and_what_a_step_takes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    blocking = explain(_timeline("1", monkeypatch), step="step").result
    plain = explain(_timeline("0", monkeypatch), step="step").result
    (finding,) = [each for each in blocking.findings if each.rule == "launches-block"]
    assert finding.count == 100
    assert finding.gain_ns == pytest.approx(blocking.steps.mean_ns - plain.steps.mean_ns, rel=0.02)
    assert not [each for each in plain.findings if each.rule == "launches-block"]
