"""Threads: autograd's goes on while its caller waits; those of Python go their own ways."""

from __future__ import annotations

import sys
from dataclasses import replace
from operator import itemgetter

import pytest
from virtual.simulate.logs import HOST, Fixed, Log
from virtual.simulate.runs import begin, calls

from unstall.timeline.columns import HostKind, Timeline
from unstall.virtual.log import NO_PYTHON, LogCode
from unstall.virtual.options import MachineOptions, Numerics
from unstall.virtual.simulation.simulator import Simulator


def backward(log: Log, duration: int, nodes: int = 1) -> None:
    stack, log.thread, log.stack = log.stack, 5, -1
    for number in range(nodes):
        with log.op("MmBackward0", sequence=number, forward=0):
            log.launch(duration)
    log.thread, log.stack = 0, stack


def test_autograds_thread_begins_where_its_caller_is_and_the_caller_goes_on_after_it() -> None:
    log, simulator = begin()
    log.stack = -2
    with log.op("aten::mm", sequence=0):
        log.launch(10)
    backward(log, 10)
    with log.op("aten::add_"):
        pass
    assert calls(simulator.timeline(), HostKind.OP) == [
        ("aten::mm", 1_000, 3_100),
        ("aten::add_", 7_200, 7_300),
        ("MmBackward0", 4_100, 6_200),
    ]


def test_so_it_is_when_the_clock_is_read_in_between() -> None:
    def times(read: bool) -> list[int]:
        log, simulator = begin()
        log.stack = -2
        for _ in range(3):
            log.launch(10)
            if read:
                simulator.drain()
            backward(log, 10, nodes=2)
            if read:
                simulator.drain()
        return list(simulator.timeline().host.start.tolist())

    assert times(read=True) == times(read=False)


def test_autograd_does_not_wait_for_a_thread_that_sleeps_between_redraws_of_a_progress_bar() -> None:
    def times(redrawn: bool) -> list[tuple[str, int, int]]:
        log, simulator = begin()
        log.frames.append([(sys._getframe().f_code, 0)])
        log.stack = 0

        def redraw() -> None:
            if redrawn:
                log.thread = 1
                log.write(LogCode.ADVANCE, 100_000)
            log.thread = 0

        log.launch(10)
        for _ in range(2):
            redraw()
            with log.op("aten::mm", sequence=0):
                log.launch(10)
            redraw()
            backward(log, 10)
            redraw()
            with log.op("aten::add_"):
                pass
        return calls(simulator.timeline(), HostKind.OP)

    assert times(redrawn=True) == times(redrawn=False)


def test_autograd_waits_for_the_caller_of_backward_not_for_a_thread_that_pins_memory_meanwhile() -> None:
    def times(pinned: bool) -> list[tuple[str, int, int]]:
        log, simulator = begin()
        log.frames.append([(sys._getframe().f_code, 0)])
        log.thread, log.stack = 1, 0
        log.write(LogCode.PIN, 4096)
        log.thread = 0
        log.launch(10)
        if pinned:
            log.thread = 1
            log.write(LogCode.PIN, 4096)
        log.thread, log.stack = 5, -1
        with log.op("MmBackward0", sequence=0, forward=0, content=1):
            log.launch(10)
        log.thread, log.stack = 0, 0
        with log.op("aten::add_"):
            pass
        return calls(simulator.timeline(), HostKind.OP)

    assert times(pinned=True) == times(pinned=False)


def test_a_thread_of_python_begins_after_what_was_before_it_and_then_overlaps() -> None:
    log, simulator = begin()
    log.frames.append([(sys._getframe().f_code, 0)])
    log.stack = 0
    log.write(LogCode.ADVANCE, 10_000)
    log.thread = 1
    log.write(LogCode.ADVANCE, 50_000)
    log.thread = 0
    log.write(LogCode.ADVANCE, 20_000)
    log.launch(1)
    log.thread = 1
    log.launch(1)
    timeline = simulator.timeline()
    assert [start for _, start, _ in calls(timeline)] == [30_000, 60_000]
    slept = [(start, end) for _, start, end in calls(timeline, HostKind.PYTHON)]
    assert slept == [(0, 10_000), (10_000, 30_000), (10_000, 60_000)]


@pytest.mark.parametrize("code", [LogCode.EVENT_WAIT, LogCode.SYNC_EVENT])
@pytest.mark.parametrize("read", [False, True])
def test_who_waits_for_an_event_was_handed_it_once_it_was_recorded(code: LogCode, read: bool) -> None:
    """Fetched ahead on a thread of its own: the program has no batch before that thread has made it."""
    log, simulator = begin()
    log.frames.append([(sys._getframe().f_code, 0)])
    log.stack = 0
    log.write(LogCode.ADVANCE, 10_000)
    log.thread = 1
    log.write(LogCode.ADVANCE, 50_000)
    log.write(LogCode.EVENT_RECORD, 7, stream=3)
    log.write(LogCode.ADVANCE, 90_000)  # the next one
    if read:
        simulator.drain()
    log.thread = 0
    log.write(code, 7)
    log.launch(1)
    record, wait, launch = sorted(calls(simulator.timeline()), key=itemgetter(1))
    assert record[2] == 60_500
    assert (wait[1], launch[1] - wait[2]) == (record[2], 0)


@pytest.mark.parametrize("read", [False, True])
def test_a_thread_begins_when_it_was_started_and_who_joins_it_goes_on_when_it_has_ended(read: bool) -> None:
    log, simulator = begin()
    log.frames.append([(sys._getframe().f_code, 0)])
    log.stack = 0
    log.write(LogCode.ADVANCE, 10_000)
    log.write(LogCode.GIVE, 1)
    log.write(LogCode.ADVANCE, 20_000)  # meanwhile
    if read:
        simulator.drain()
    log.thread = 1
    log.write(LogCode.TAKE, 1)
    log.write(LogCode.ADVANCE, 50_000)
    log.write(LogCode.GIVE, 2)
    if read:
        simulator.drain()
    log.thread = 0
    log.write(LogCode.TAKE, 2)
    log.write(LogCode.ADVANCE, 5_000)
    slept = [(start, end) for _, start, end in calls(simulator.timeline(), HostKind.PYTHON)]
    assert slept == [(0, 10_000), (10_000, 30_000), (60_000, 65_000), (10_000, 60_000)]


@pytest.mark.parametrize("read", [False, True])
def test_who_joins_a_thread_that_wrote_nothing_goes_on(read: bool) -> None:
    log, simulator = begin()
    log.write(LogCode.GIVE, 1)
    if read:
        simulator.drain()
    log.write(LogCode.TAKE, 1)
    log.write(LogCode.ADVANCE, 1_000)
    assert max(end for _, _, end in calls(simulator.timeline(), HostKind.PYTHON)) == 1_000


def test_who_joins_a_thread_that_has_long_ended_does_not_wait() -> None:
    log, simulator = begin()
    log.write(LogCode.GIVE, 1)
    log.thread = 1
    log.write(LogCode.TAKE, 1)
    log.write(LogCode.ADVANCE, 5_000)
    log.write(LogCode.GIVE, 2)
    log.thread = 0
    log.write(LogCode.ADVANCE, 20_000)
    log.write(LogCode.TAKE, 2)
    log.write(LogCode.ADVANCE, 1_000)
    assert max(end for _, _, end in calls(simulator.timeline(), HostKind.PYTHON)) == 21_000


def test_on_a_measured_host_a_thread_works_from_its_start_on_and_who_joins_it_does_not_work_meanwhile() -> None:
    log, simulator = begin(host="measured")
    log.frames.append([(sys._getframe().f_code, 0)])
    log.stack = 0
    log.write(LogCode.ADVANCE, 1_000)
    log.host_ns = 100_000
    log.write(LogCode.GIVE, 101_000)
    log.thread, log.host_ns = 1, 400_000  # after 300 us of work
    log.write(LogCode.TAKE, 101_000)
    log.write(LogCode.GIVE, 402_000)
    log.thread = 0
    log.write(LogCode.TAKE, 402_000)
    log.write(LogCode.ADVANCE, 1_000)
    ends = [end for _, _, end in calls(simulator.timeline(), HostKind.PYTHON)]
    worked, between_records = 100_000, 1_000
    assert ends == [1_000, 1_000 + worked + 300_000 + 2 * between_records + 1_000]


def test_so_has_who_asks_whether_it_is_done() -> None:
    log, simulator = begin()
    log.thread = 1
    log.write(LogCode.ADVANCE, 50_000)
    log.write(LogCode.EVENT_RECORD, 7, stream=3)
    log.thread = 0
    before = simulator.now_ns()
    simulator.event_done(7)
    assert (before < 50_000, simulator.now_ns() >= 50_000 + HOST.event_record) == (True, True)


def frame_of(timeline: Timeline, row: int) -> list[tuple[str, int]]:
    stack, found = int(timeline.host.stack[row]), []
    while stack >= 0:
        line = timeline.stacks.line[stack]
        found.append((timeline.text(timeline.lines.function[line]), int(timeline.lines.line[line])))
        stack = int(timeline.stacks.parent[stack])
    return found


def test_what_autograd_does_has_the_stack_of_the_call_that_it_is_done_for() -> None:
    def here() -> None:
        frame = sys._getframe(1)
        log.frames.append([(frame.f_code, frame.f_lasti)])
        log.stack = len(log.frames) - 1

    log, simulator = begin()
    here()
    log.launch(10)
    here()
    log.launch(10)
    line = sys._getframe().f_lineno - 2
    backward(log, 10)
    here()  # another thread, which redraws a progress bar
    log.thread = 1
    log.write(LogCode.ADVANCE, 100)
    backward(log, 10)
    timeline = simulator.timeline()
    name = sys._getframe().f_code.co_qualname
    assert [frame_of(timeline, row) for row in range(len(timeline.host))] == [
        [(name, line - 2)],
        [(name, line)],
        [(name, line + 4)],
        [(name, line)],
        [(name, line)],
        [(name, line)],
        [(name, line)],
    ]
    assert timeline.lines.exact.all()


def test_frames_of_what_stands_in_for_torch_are_none_of_the_programs() -> None:
    log, simulator = begin()
    own = sys._getframe().f_code
    log.frames.append([(Simulator.now_ns.__code__, 0), (own, 0)])
    log.stack = 0
    log.launch(10)
    timeline = simulator.timeline()
    assert [name for name, _ in frame_of(timeline, 0)] == [own.co_qualname]


def test_a_gradient_belongs_to_the_last_operator_with_its_sequence_number() -> None:
    log, simulator = begin()
    log.stack = -2
    with log.op("aten::linear", sequence=0), log.op("aten::addmm", sequence=0):
        log.launch(10)
    backward(log, 10)
    host = simulator.timeline().host
    forward = {int(row): int(host.forward[row]) for row in range(len(host)) if host.forward[row] >= 0}
    names = [simulator.timeline().text(host.name[row]) for row in forward.values()]
    assert names == ["aten::addmm", "aten::addmm"]


def test_bytecode_that_is_passed_takes_time() -> None:
    code = sys._getframe().f_code
    log, simulator = begin()
    outer, inner = (code, 0), (code, 2)
    log.frames += [[outer], [inner, outer], [(code, 14), outer], [(code, 40)]]
    for log.stack in range(4):
        log.write(LogCode.OP_BEGIN, -1, -1, id=log.name("op"))
        log.write(LogCode.OP_END)
    starts = [start for _, start, _ in calls(simulator.timeline(), HostKind.OP)]
    # Nothing; a frame, 2 bytes into it; that one goes on by 12; back in the outer one, 40 further on.
    assert starts == [1_000, 1_000 + 1_102, 1_000 + 1_102 + 1_112, 1_000 + 1_102 + 1_112 + 1_140]


def test_an_operator_that_another_calls_is_entered_faster() -> None:
    costs = Fixed()
    costs.host = replace(HOST, nested=600)
    log = Log()
    simulator = Simulator(log, MachineOptions(), costs)
    for _ in range(2):
        with log.op("linear"), log.op("addmm"):
            pass
    found = calls(simulator.timeline(), HostKind.OP)
    assert [(name, start) for name, start, _ in found] == [
        ("linear", 1_000),
        ("addmm", 1_600),
        ("linear", 2_800),
        ("addmm", 3_400),
    ]


def test_a_measured_host_is_as_slow_as_this_one_without_what_it_computed() -> None:
    log, simulator = begin(host="measured")
    log.stack = -2
    log.write(LogCode.OP_BEGIN, -1, -1, id=log.name("aten::mm"))
    log.host_ns += 500_000
    log.write(LogCode.OP_END, computing_ns=400_000)
    assert calls(simulator.timeline(), HostKind.OP) == [("aten::mm", 0, 101_000)]


@pytest.mark.parametrize(("seconds", "numerics", "lines"), [(12, "real", 1), (12, "skip", 0), (9, "real", 0)])
def test_that_values_take_long_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seconds: int, numerics: Numerics, lines: int
) -> None:
    monkeypatch.setenv("RANK", "3")
    log = Log()
    simulator = Simulator(log, MachineOptions(numerics=numerics), Fixed())
    for _ in range(4):
        with log.op("aten::mm"):
            log.write(LogCode.ADVANCE, computing_ns=seconds * 500_000_000)
        simulator.drain()
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines
    assert all(line.startswith("unstall: rank 3: computing the values of tensors took 24.0 s so far") for line in told)


def test_on_a_measured_host_sleep_counts_once() -> None:
    log, simulator = begin(host="measured")
    log.stack = -2
    log.launch(1)
    log.host_ns += 500_000
    log.write(LogCode.ADVANCE, 500_000)
    log.launch(1)
    timeline = simulator.timeline()
    (_, start, end), (_, launched, _) = calls(timeline, HostKind.PYTHON)[0], calls(timeline, HostKind.LAUNCH)[1]
    assert end - start == 500_000
    assert launched < 510_000


def test_a_thread_of_a_process_group_goes_its_own_way_beside_autograds_and_its_caller() -> None:
    log, simulator = begin()
    log.stack = -2
    log.launch(10)
    backward(log, 10)
    log.thread, log.stack = 7, -1
    with log.mark("gloo:all_reduce"):
        log.write(LogCode.ADVANCE, 50_000)
    backward(log, 10)
    log.thread, log.stack = 0, -2
    log.launch(10)
    assert max(start for _, start, _ in calls(simulator.timeline())) < 50_000


@pytest.mark.parametrize("read", [False, True])
def test_a_collective_begins_when_it_was_asked_for_not_when_the_one_before_it_was_done(read: bool) -> None:
    def collective(stream: int) -> None:
        log.thread, log.stack = 0, -2
        log.write(LogCode.ADVANCE, 1_000_000)
        log.write(LogCode.EVENT_RECORD, stream)
        log.write(LogCode.EVENT_WAIT, stream, stream=stream)
        log.write(LogCode.ADVANCE, 70_000)  # the program goes on before the group's thread does
        if read:
            simulator.drain()
        log.thread, log.stack = 7, -1
        with log.mark("gloo:all_reduce"):
            log.write(LogCode.SYNC_STREAM, stream=stream)

    log, simulator = begin()
    for stream in (3, 5):
        collective(stream)
    found = calls(simulator.timeline())
    asked = [end for name, _, end in found if name == "cudaStreamWaitEvent"]
    waits = [start for name, start, _ in found if name == "cudaStreamSynchronize"]
    marks = [start for _, start, _ in calls(simulator.timeline(), HostKind.ANNOTATION)]
    assert (waits[1], marks[1]) == (asked[1] + HOST.mark, asked[1] + HOST.mark)


@pytest.mark.parametrize(("thread", "extra"), [(0, 0), (1, 700)])
def test_an_operator_that_autograds_engine_calls_costs_what_its_node_does(thread: int, extra: int) -> None:
    def at(node: int) -> int:
        costs = Fixed()
        costs.host = replace(HOST, node=node)
        log, simulator = begin(costs=costs)
        log.thread, log.stack = thread, NO_PYTHON
        with log.op("aten::mm"):
            pass
        ((_, start, _),) = calls(simulator.timeline(), HostKind.OP)
        return start

    assert at(700) - at(0) == extra
