"""The step time that a program settles to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from programs import BODIES, Program, _run, programs
from replay import repeated
from replay.invented import Do, Op
from replay.invented import program as by_hand
from replay.recorded import A_FEW, Trace, program, program_of

from unstall.diagnose.analyse import analyse
from unstall.replay.engine import replay
from unstall.replay.program import Code
from unstall.replay.steady import settle, steady_step_ns
from unstall.what_if.edits import parse
from unstall.what_if.subject import Subject


@A_FEW
@given(programs())
def test_rounds_are_those_of_one_long_program(made_by: Program) -> None:
    made = program(made_by)
    settled, twin = settle(made), repeated.settle(made)
    assert (settled.step_ns, settled.busy_ns) == (twin.step_ns, twin.busy_ns)


@pytest.mark.parametrize("queue", [1022, 30, 7])
@pytest.mark.parametrize("kernel_us", [1, 9, 10, 11, 40])
def test_rounds_of_a_full_queue_are_those_of_one_long_program(queue: int, kernel_us: float) -> None:
    trace = Trace(queue=queue)
    for number in range(3):
        with trace.step():
            for _ in range(12):
                trace.launch("gemm", kernel_us, stream=7 + number)
                trace.work(5)
            trace.launch("side", 300, stream=20)
    made = replace(program(trace), capacity=queue)
    assert steady_step_ns(made) == repeated.settle(made).step_ns


def test_a_thread_that_was_waited_for_as_it_recorded_an_event_is_waited_for_in_each_round() -> None:
    """Not the thread that records events on that stream later."""
    made = by_hand(
        Do(Code.RECORD, thread=1, stream=0),
        Do(Code.JOIN, target=0),
        Do(Code.RECORD, stream=0),
        Do(Code.CALL, thread=1, work=500),
        Do(Code.LAUNCH, stream=0, ops=[Op(5)]),
        threads=2,
    )
    made = replace(made, step_starts=np.array([1]), step_ends=np.array([4]))
    assert steady_step_ns(made) == repeated.settle(made).step_ns == 500


@st.composite
def drained(draw: st.DrawFn) -> Program:
    """Steps of one device that are all the same, each of which ends with a wait for it."""
    trace = Program(stacks=False)
    body = draw(BODIES)
    for _ in range(draw(st.integers(2, 4))):
        with trace.step():
            trace.launch(device_us=20)
            _run(trace, body)
            trace.sync("device")
        trace.work(50)
    assume(len({event["tid"] for event in trace.events if event["cat"] in ("cpu_op", "cuda_runtime")}) == 1)
    assume(all(event["args"].get("device", 0) <= 0 for event in trace.events))
    assume("cudaStreamWaitEvent" not in {event["name"] for event in trace.events})  # perhaps of a stream with no op
    return trace


@A_FEW
@given(drained())
def test_steps_that_leave_nothing_queued_take_what_they_take(made_by: Program) -> None:
    made = program(made_by)
    times = replay(made)
    starts = times.end[made.step_starts]
    uneven = int(np.ptp(times.end[made.step_ends] - starts))  # what the last takes is in no distance between starts
    assert steady_step_ns(made) == pytest.approx(float(np.diff(starts).mean()), rel=1e-3, abs=50 + uneven)


def steps(count: int, kernel_us: float, host_us: float, *, before_us: float = 0) -> Trace:
    """Steps of one kernel and some work of the host, after a kernel in front of them all."""
    trace = Trace()
    for _ in range(3):
        trace.launch("learned", 1)
        trace.work(20)
    for _ in range(3):
        trace.launch("learned", 40)
        trace.launch("learned", 1)
        trace.work(60)
    if before_us:
        trace.launch("before", before_us)
    for _ in range(count):
        with trace.step():
            trace.launch("gemm", kernel_us)
            trace.work(host_us)
    return trace


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_however_many_steps_were_recorded_a_step_of_the_device_is_as_long(count: int) -> None:
    made = steps(count, kernel_us=100, host_us=15)
    assert steady_step_ns(program(made)) == 100_000
    # The window of the recording has the first kernel's way to the device in it too.
    assert replay(program(made)).mean_step_ns(program(made)) == 100_000 + (5_000 + 3_000) / count


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_however_many_steps_were_recorded_a_step_of_the_host_is_as_long(count: int) -> None:
    assert steady_step_ns(program(steps(count, kernel_us=10, host_us=45))) == 50_000


def test_what_the_device_had_queued_before_does_not_count() -> None:
    """While it catches up it is done with a step every 10 µs; the host goes on at one in 50."""
    assert steady_step_ns(program(steps(2, kernel_us=10, host_us=45, before_us=2_000))) == 50_000


def test_how_long_the_device_is_at_work_in_a_step() -> None:
    settled = settle(program(steps(3, kernel_us=10, host_us=45)))
    assert (settled.step_ns, settled.busy_ns) == (50_000, 10_000)


def test_where_the_device_is_the_slower_one_it_is_always_at_work() -> None:
    settled = settle(program(steps(3, kernel_us=100, host_us=15)))
    assert settled.busy_ns == settled.step_ns == 100_000


def test_the_time_between_two_steps_is_a_part_of_each() -> None:
    trace = Trace()
    for _ in range(3):
        with trace.step():
            trace.launch("gemm", 10)
            trace.work(15)
        trace.work(30)
    assert steady_step_ns(program(trace)) == 5_000 + 15_000 + 30_000


@A_FEW
@given(drained(), st.integers(2, 4))
def test_a_program_repeated_settles_to_the_same(made_by: Program, times: int) -> None:
    made = program(made_by)
    assert steady_step_ns(repeated.repeat(made, times)) == pytest.approx(steady_step_ns(made), rel=1e-3, abs=50)


SPEEDS = ("host-speed:2", "host-speed:inf", "kernel-speed:2", "kernel-speed:inf", "keep-cache", "remove-syncs")


@A_FEW
@given(programs(), st.sampled_from(SPEEDS))
def test_what_takes_less_time_never_makes_a_settled_step_longer(made_by: Program, edit: str) -> None:
    timeline = made_by.timeline()
    run = analyse(timeline)
    subject = Subject(timeline, run.places, run.steps, program_of(timeline))
    edited = parse(edit).apply(subject).program
    assert steady_step_ns(edited) <= steady_step_ns(subject.program) + 1
