"""CUDA graphs: captured once, launched by one call."""

from __future__ import annotations

from virtual.simulate.logs import HOST, LIMITS, MIB, Log
from virtual.simulate.runs import begin, calls, ops

from unstall.timeline.columns import DeviceKind, HostKind
from unstall.virtual.log import CopyFlag, LogCode

CAPTURING = 3


def capture(log: Log, durations: list[int]) -> None:
    log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=CAPTURING)
    for duration in durations:
        log.launch(duration, stream=CAPTURING)
    log.write(LogCode.CAPTURE_END, 1, stream=CAPTURING)


def test_nothing_runs_while_it_is_captured() -> None:
    log, simulator = begin()
    capture(log, [10_000] * 5)
    timeline = simulator.timeline()
    assert len(timeline.device) == 0
    assert simulator.now_ns() == 5 * HOST.capture + HOST.clock_read


def test_what_is_not_on_the_captured_stream_runs_meanwhile() -> None:
    log, simulator = begin()
    log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=CAPTURING)
    log.launch(10_000)
    log.write(LogCode.CAPTURE_END, 1, stream=CAPTURING)
    assert len(simulator.timeline().device) == 1


def test_a_launch_puts_all_ops_on_its_stream_with_the_gaps_of_a_graph() -> None:
    log, simulator = begin()
    capture(log, [20_000] * 3)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    timeline = simulator.timeline()
    name, start, end = calls(timeline, HostKind.GRAPH_LAUNCH)[0]
    assert (name, end - start) == ("cudaGraphLaunch", HOST.graph_launch + 3 * HOST.graph_node)
    first = end + LIMITS.graph_latency
    assert ops(timeline) == [(0, first + row * 20_100, first + row * 20_100 + 20_000) for row in range(3)]
    assert len(set(timeline.device.launch.tolist())) == 1


def test_in_a_graph_an_op_follows_a_memset_as_late_as_outside() -> None:
    log, simulator = begin()
    log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=CAPTURING)
    for kind in (DeviceKind.KERNEL, DeviceKind.MEMSET, DeviceKind.KERNEL):
        log.launch(20_000, stream=CAPTURING, kind=int(kind))
    log.write(LogCode.CAPTURE_END, 1, stream=CAPTURING)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    before, memset, after = ops(simulator.timeline())
    assert memset[1] - before[2] == LIMITS.graph_gap
    assert after[1] - memset[2] == LIMITS.gap


def test_a_second_launch_follows_the_first() -> None:
    log, simulator = begin()
    capture(log, [200_000])
    log.write(LogCode.GRAPH_LAUNCH, 1)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    first, second = ops(simulator.timeline())
    assert second[1] == first[2] + LIMITS.gap


def test_branches_run_beside_each_other_and_their_join_waits_for_the_longest() -> None:
    log, simulator = begin()
    flags = CopyFlag.HOST_TO_DEVICE | CopyFlag.PINNED | CopyFlag.NON_BLOCKING
    log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=CAPTURING)
    log.write(LogCode.EVENT_RECORD, 1, stream=CAPTURING)
    log.write(LogCode.EVENT_WAIT, 1, stream=8)
    log.copy(MIB, flags, stream=8)
    log.launch(20_000, stream=CAPTURING)
    log.write(LogCode.EVENT_RECORD, 2, stream=8)
    log.write(LogCode.EVENT_WAIT, 2, stream=CAPTURING)
    log.launch(30_000, stream=CAPTURING)
    log.write(LogCode.CAPTURE_END, 1, stream=CAPTURING)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    beside, copy, after = sorted(ops(simulator.timeline()), key=lambda op: op[2] - op[1] == 30_000)[:3]
    assert copy[1] - beside[1] == LIMITS.branch_delay
    assert copy[1] < beside[2]
    assert after[1] >= max(copy[2], beside[2])
    assert copy[0] != beside[0]


def test_a_graph_that_was_never_captured_launches_nothing() -> None:
    log, simulator = begin()
    log.write(LogCode.GRAPH_LAUNCH, 99)
    assert len(simulator.timeline().device) == 0


def test_kernels_of_a_branch_are_as_far_apart_as_if_it_were_the_only_one() -> None:
    def gap(*, branches: bool) -> int:
        """Returns the gap between two kernels of the captured stream."""
        log, simulator = begin()
        log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=CAPTURING)
        log.write(LogCode.EVENT_RECORD, 1, stream=CAPTURING)
        log.write(LogCode.EVENT_WAIT, 1, stream=8)
        for _ in range(2):
            log.launch(20_000, stream=CAPTURING)
        if branches:
            log.launch(1_000, stream=8, fills=False)
        log.write(LogCode.CAPTURE_END, 1, stream=CAPTURING)
        log.write(LogCode.GRAPH_LAUNCH, 1)
        first, second = (op for op in ops(simulator.timeline()) if op[2] - op[1] >= 20_000)
        return second[1] - first[2]

    assert gap(branches=True) == gap(branches=False) == LIMITS.graph_gap
