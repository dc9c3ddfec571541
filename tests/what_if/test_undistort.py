"""Taking the recorder's own cost out of a program, and calibration to the step time that was measured without it."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import Program as Made
from programs import programs
from replay.recorded import A_FEW, Trace, program
from traces import TraceBuilder
from what_if.made import same, subject_of

from unstall.diagnose.analyse import analyse
from unstall.errors import UsageError
from unstall.replay.engine import replay
from unstall.replay.program import Code, Program
from unstall.replay.steady import steady_step_ns
from unstall.what_if.calibrate import by_overhead
from unstall.what_if.model import as_a_rule, model
from unstall.what_if.undistort import RecorderCost, own_work, undistort, without_pauses

SCALES = st.floats(0, 4)


def columns(made: Program) -> list[np.ndarray]:
    do, ops = made.instructions, made.ops
    return [do.work, do.call, ops.gap, ops.duration]


@A_FEW
@given(programs(), SCALES, SCALES)
def test_the_more_is_taken_out_the_less_is_left(made_by: Made, one: float, other: float) -> None:
    made = program(made_by)
    less, more = undistort(made, min(one, other)), undistort(made, max(one, other))
    for before, after in zip(columns(less), columns(more), strict=True):
        assert (after <= before).all()
    assert (replay(more).end <= replay(less).end).all()


@A_FEW
@given(programs(), SCALES)
def test_nothing_is_ever_less_than_nothing(made_by: Made, scale: float) -> None:
    made = program(made_by)
    for before, after in zip(columns(made), columns(undistort(made, scale)), strict=True):
        assert (after >= 0).all()
        assert (after <= before).all()


@A_FEW
@given(programs())
def test_no_cost_at_all_changes_nothing(made_by: Made) -> None:
    made = program(made_by)
    assert same(undistort(made, 0.0), made)


COST = RecorderCost(operator=2_000, frame=500, call=1_000, launch=1_500, node=700, op=200)


def test_each_event_costs_what_its_kind_does() -> None:
    """40 µs of work with two operators, a frame and a call in it, and a launch of 5."""
    trace = Trace()
    trace.launch("first", 1)
    with trace.frame("train.py", 1, "train"), trace.op("aten::linear"), trace.op("aten::mm"):
        trace.work(30)
        trace.call("cudaGetDevice", 10)
        trace.launch("gemm", 10)
    made = undistort(program(trace), 1.0, COST)
    _, launch = np.flatnonzero(made.instructions.code == Code.LAUNCH)
    assert made.instructions.work[launch] == 40_000 - 2 * 2_000 - 500 - 1_000
    assert made.instructions.call[launch] == 5_000 - 1_500


def test_the_cost_is_that_of_the_recorder_that_the_file_names() -> None:
    """A step has four launches, each with a call before it, an operator, an annotation, and
    three frames, of which one is nearly all of the work it is in."""
    step_us = {}
    for recorder in (None, "torch", "cupti"):
        trace = TraceBuilder(enter_us=0, unstall={"recorder": recorder})
        for _ in range(4):
            with trace.step(), trace.frame("train.py", 41, "step"), trace.op("aten::mm"):
                for _ in range(4):
                    trace.call("cudaGetDevice", 20)
                    trace.work(50)
                    trace.launch("gemm", 1, host_us=20)
        timeline = trace.timeline()
        run = analyse(timeline)
        with_cost, without = (
            model(timeline, run.steps, run.places, as_recorded=kept).undistorted_step_ns for kept in (True, False)
        )
        step_us[recorder] = round((with_cost - without) / 1000, 2)
    assert step_us["cupti"] == pytest.approx(4 * (1.2 + 3.1))
    assert step_us["torch"] == pytest.approx(4 * (1.5 + 1.5) + 2 * 2.4)
    assert step_us["torch"] + 2 * 0.35 < step_us[None] <= step_us["torch"] + 3 * 0.35


def test_a_graph_costs_more_the_more_it_launches() -> None:
    trace = Trace()
    trace.graph([10, 10])
    made = undistort(program(trace), 1.0, COST)
    (launch,) = np.flatnonzero(made.instructions.code == Code.LAUNCH)
    assert made.instructions.call[launch] == 5_000 - 1_500 - 2 * 700


def test_a_share_of_what_was_recorded_always_stays() -> None:
    trace = Trace()
    trace.launch("first", 1)
    with trace.op("aten::mm"):
        trace.work(1)
        trace.launch("gemm", 10)
    made = undistort(program(trace), 4.0, COST)
    _, launch = np.flatnonzero(made.instructions.code == Code.LAUNCH)
    assert made.instructions.work[launch] == 150
    assert made.instructions.call[launch] == 1_250


# Meeting the plain step time.


def host_bound() -> Program:
    """Steps of 100 µs with 10 operators in them, and 10 µs of the device."""
    trace = Trace()
    for _ in range(4):
        with trace.step():
            for _ in range(10):
                with trace.op("aten::mm"):
                    trace.work(5)
                    trace.launch("gemm", 1)
    return program(trace)


def device_bound() -> Program:
    """Steps of 1 ms of the device, launched in 100 µs."""
    trace = Trace()
    for _ in range(4):
        with trace.step():
            for _ in range(10):
                with trace.op("aten::mm"):
                    trace.work(5)
                    trace.launch("gemm", 100)
    return program(trace)


@pytest.mark.parametrize("plain_ns", [95_000, 70_000, 60_000])
def test_a_host_without_the_recorder_takes_the_plain_time(plain_ns: int) -> None:
    made = host_bound()
    assert steady_step_ns(made) == 100_000
    met = by_overhead(made, plain_ns)[0]
    assert steady_step_ns(met) == pytest.approx(plain_ns, rel=0.002)
    assert same_device(met, made)


def same_device(one: Program, other: Program) -> bool:
    return np.array_equal(one.ops.duration, other.ops.duration)


@pytest.mark.parametrize("plain_ns", [800_000, 950_000, 1_100_000, 1_240_000])
def test_a_device_that_was_not_as_fast_then_takes_the_plain_time(plain_ns: int) -> None:
    met = by_overhead(device_bound(), plain_ns)[0]
    assert steady_step_ns(met) == pytest.approx(plain_ns, rel=0.003)


@pytest.mark.parametrize("plain_ns", [1_000, 500_000])
def test_a_device_is_made_no_more_than_a_quarter_faster(plain_ns: int) -> None:
    made = device_bound()
    met = by_overhead(made, plain_ns)[0]
    assert steady_step_ns(met) == pytest.approx(750_000, rel=0.003)
    assert met.ops.duration.min() >= 0.75 * made.ops.duration.min()


def test_a_plain_time_above_the_recorded_one_is_met_by_nothing_taken_out() -> None:
    met = by_overhead(host_bound(), 100_150)[0]
    assert steady_step_ns(met) == pytest.approx(100_000, rel=0.002)


def test_what_no_faster_or_slower_device_explains_is_not_put_on_it() -> None:
    """The host takes 100 µs, and was measured to take 130: a device that is idle for 90 of them has no part in it."""
    made = host_bound()
    assert same_device(by_overhead(made, 130_000)[0], made)


@pytest.mark.parametrize("plain_ns", [2_000, 10_000])
def test_what_no_recorder_explains_leaves_the_device_as_it_was(plain_ns: int) -> None:
    made = host_bound()
    met = by_overhead(made, plain_ns)[0]
    assert same_device(met, made)
    assert 10_000 < steady_step_ns(met) < 50_000


# Pauses.


def paused(*pauses_us: float) -> Program:
    """Steps of 60 µs of the host, and each with a pause."""
    trace = Trace()
    for pause in pauses_us:
        with trace.step():
            trace.launch("gemm", 1)
            trace.work(50 + pause)
            trace.launch("gemm", 1)
    return program(trace)


def test_steps_that_are_alike_have_no_pause() -> None:
    made = paused(0, 10, 5, 0)
    usual, left_out = without_pauses(made)
    assert left_out == 0
    assert same(usual, made)


def test_a_long_pause_of_one_step_is_taken_out() -> None:
    usual, left_out = without_pauses(paused(0, 0, 5_000, 0))
    assert left_out == 5_000_000
    assert same(usual, paused(0, 0, 0, 0))


def test_a_pause_of_each_step_is_none() -> None:
    made = paused(5_000, 5_000, 5_000)
    assert without_pauses(made)[1] == 0


def test_a_single_step_is_not_judged() -> None:
    made = paused(5_000)
    usual, left_out = without_pauses(made)
    assert left_out == 0
    assert same(usual, made)


def buffers_asked_for(
    us: float, *, times: int = 1, by_autograd: bool = False, what: str = "Activity Buffer Request"
) -> Trace:
    """Three steps, of which the second asks for buffers so many times, each of so many microseconds."""
    trace = Trace()
    for number in range(3):
        with trace.step():
            trace.launch("forward", 1)
            with trace.backward("mm", 7) if by_autograd else nullcontext():
                for _ in range(times):
                    trace.work(50)
                    if number == 1:
                        trace.overhead(what, us)
                    trace.launch("gemm", 1)
            trace.work(20)
            trace.launch("step", 1)
    return trace


@pytest.mark.parametrize("by_autograd", [False, True])
def test_the_recorders_own_work_between_two_calls_is_taken_out(by_autograd: bool) -> None:
    usual, left_out = as_a_rule(subject_of(buffers_asked_for(5_000, times=3, by_autograd=by_autograd)))
    assert left_out == 0
    assert same(usual, subject_of(buffers_asked_for(0, times=3, by_autograd=by_autograd)).program)


@pytest.mark.parametrize("us", [100, 5_000])
def test_the_recorders_own_work_is_taken_out_of_a_single_step(us: float) -> None:
    def one_step(us: float) -> Trace:
        trace = Trace()
        with trace.step():
            trace.launch("gemm", 1)
            trace.overhead("Activity Buffer Request", us)
            trace.launch("gemm", 1)
        return trace

    assert same(as_a_rule(subject_of(one_step(us)))[0], program(one_step(0)))


def test_what_the_recorder_does_during_a_wait_for_data_makes_that_no_longer() -> None:
    trace = Trace()
    for number in range(3):
        with trace.step():
            with trace.frame("torch/utils/data/dataloader.py", 700, "__next__"):
                trace.work(2_000)
                if number == 1:
                    trace.overhead("Activity Buffer Request", 1_000)
            trace.launch("gemm", 1)
    made = subject_of(trace)
    assert same(as_a_rule(made)[0], made.program)


def test_what_a_thread_of_the_recorders_own_does_meanwhile_is_left() -> None:
    made = subject_of(buffers_asked_for(200, what="Buffer Flush"))
    assert same(as_a_rule(made)[0], made.program)


def test_work_that_is_not_all_between_two_calls_is_left() -> None:
    made = program(buffers_asked_for(0))
    start = 1_000 * np.arange(len(made.instructions), dtype=np.int64)
    since, of_calls = np.append(-made.instructions.work[0], start[:-1] + 400), np.array([100, 1_300, 2_500])
    assert own_work(made, since, start, (of_calls, of_calls + 200))[:4].tolist() == [0, 0, 0, 200]


@A_FEW
@given(programs())
def test_the_recorders_own_work_is_never_more_than_there_was(made_by: Made) -> None:
    made = subject_of(made_by)
    usual, _ = as_a_rule(made)
    assert (usual.instructions.work >= 0).all()
    assert (usual.instructions.work <= made.program.instructions.work).all()


def test_steps_of_other_instructions_are_not_compared() -> None:
    trace = Trace()
    for number in range(3):
        with trace.step():
            trace.launch("gemm", 1)
            trace.work(50 + 5_000 * (number == 0))
            trace.launch("gemm", 1)
            if number == 0:
                trace.launch("more", 1)
    made = program(trace)
    assert without_pauses(made)[1] == 0


@pytest.mark.parametrize("plain_step_ns", [0, -5, math.nan, math.inf, 2**62, 10**400, "28.9"])
def test_what_is_no_time_is_refused(plain_step_ns: int) -> None:
    trace = Trace()
    with trace.step():
        trace.launch("gemm", 10)
    run = analyse(trace.timeline())
    with pytest.raises(UsageError, match="is no time: give nanoseconds"):
        model(run.timeline, run.steps, run.places, plain_step_ns=plain_step_ns)


def test_a_simulated_run_has_no_plain_step_time() -> None:
    trace = Trace()
    with trace.step():
        trace.launch("gemm", 10)
    timeline = trace.timeline()
    run = analyse(timeline.with_meta(recorder="virtual"))
    with pytest.raises(UsageError, match="was simulated"):
        model(run.timeline, run.steps, run.places, plain_step_ns=20_000)
