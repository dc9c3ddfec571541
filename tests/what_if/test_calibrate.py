"""Calibration to a step time that was measured without the recorder: laws of any program, and made ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from programs import Program as Made
from programs import programs
from replay.recorded import A_FEW, Trace, program
from what_if.made import same

from unstall.diagnose.analyse import analyse
from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.what_if.calibrate import by_overhead, by_speed
from unstall.what_if.model import Model, model
from unstall.what_if.undistort import undistort

_NS = 20  # what rounding each of the times of a step to a nanosecond may come to


def calibrated(made: Program, plain_step_ns: float) -> tuple[Program, float]:
    do, ops = made.instructions, made.ops
    return by_speed(made, plain_step_ns, np.ones(len(ops), np.bool_), np.zeros(len(do), np.bool_))


@A_FEW
@given(programs(), st.floats(0, 1))
def test_a_time_that_some_of_the_recorders_cost_explains_is_met(made_by: Made, share: float) -> None:
    made = program(made_by)
    recorded, least = steady_step_ns(made), steady_step_ns(undistort(made, 4.0))
    plain_ns = least + share * (recorded - least)
    met, stretch = by_overhead(made, plain_ns)
    assert steady_step_ns(met) == pytest.approx(plain_ns, rel=0.005, abs=_NS)
    assert stretch == 1.0 or least > 0.995 * plain_ns


@A_FEW
@given(programs(), st.floats(0.2, 5))
def test_no_time_makes_it_stray_further_than_as_it_was(made_by: Made, share: float) -> None:
    made = undistort(program(made_by))
    before_ns = steady_step_ns(made)
    plain_ns = share * before_ns
    assume(plain_ns > 0)
    met, stretch = calibrated(made, plain_ns)
    off_ns = abs(steady_step_ns(met) - plain_ns)
    assert same(met, made) or off_ns <= abs(before_ns - plain_ns) / 2
    assert 0.75 <= stretch <= 1.25


@A_FEW
@given(programs(), st.booleans(), st.floats(0.8, 1.2))
def test_if_host_or_device_changed_the_time_is_met(made_by: Made, host: bool, factor: float) -> None:
    made = undistort(program(made_by))
    do, ops = made.instructions, made.ops
    for times in (do.work, do.call) if host else (ops.duration,):
        times[:] = np.rint(times * factor)
    plain_ns = steady_step_ns(made)
    assume(plain_ns > 0)
    met, _ = calibrated(undistort(program(made_by)), plain_ns)
    # A likely change that misses by a little more than 1 % can be likelier than an unlikely one that meets the time.
    assert steady_step_ns(met) == pytest.approx(plain_ns, rel=0.02, abs=_NS)


def launches(count: int, work_us: float, device_us: float, *, read: bool, loading_us: float = 0) -> Trace:
    """Four steps that launch so often after so much work of the host; `read` waits for the device at the end."""
    trace = Trace()
    for _ in range(4):
        with trace.step():
            if loading_us:
                trace.next_batch(loading_us)
            for _ in range(count):
                trace.work(work_us)
                trace.launch("kernel", device_us, host_us=5)
            if read:
                trace.work(1)
                trace.sync()
            trace.work(3)
    return trace


def modelled(trace: Trace, plain_step_ns: int) -> Model:
    """As `cupti` recorded it."""
    timeline = trace.timeline()
    timeline = timeline.with_meta(recorder="cupti")
    run = analyse(timeline)
    return model(timeline, run.steps, run.places, plain_step_ns=plain_step_ns)


@pytest.mark.parametrize("share", [0.6, 0.9, 1.0, 1.2])
def test_the_plain_step_time_is_met_by_a_host_that_was_faster_or_slower_then(share: float) -> None:
    plain_ns = round(share * 250_000)
    known = modelled(launches(10, 20, 10, read=False), plain_ns)
    assert known.undistorted_by == "plain step time"
    assert known.undistorted_step_ns == pytest.approx(plain_ns, rel=0.003)
    assert known.device_stretch == 1.0


@pytest.mark.parametrize("share", [0.9, 0.98, 1.02, 1.1])
def test_a_device_that_bounds_the_step_is_what_changed(share: float) -> None:
    """Ten ops of 30 us whose launches take 10, read at the end of each step."""
    made = program(launches(10, 5, 30, read=True))
    before_ns = steady_step_ns(made)
    met, stretch = calibrated(made, share * before_ns)
    assert steady_step_ns(met) == pytest.approx(share * before_ns, rel=0.003)
    assert 0.7 <= (stretch - 1) / (share - 1) <= 1.1


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99, 1.05, 1.2])
def test_if_neither_host_nor_device_can_be_what_changed_both_stay(share: float) -> None:
    """Steps of 2 ms in which data is waited for, and kernels of a few microseconds."""
    trace = launches(4, 1, 2, read=False, loading_us=2_000)
    as_it_was = modelled(trace, 1)  # no speed comes half the way to that
    known = modelled(trace, round(share * as_it_was.undistorted_step_ns))
    assert same(known.subject.program, as_it_was.subject.program)
    assert known.device_stretch == 1.0


def test_steps_without_any_time_of_their_own_are_as_they_are() -> None:
    made = program(launches(3, 20, 10, read=True))
    do, ops = made.instructions, made.ops
    for times in (do.work, do.call, ops.duration, ops.gap):
        times[:] = 0
    met, stretch = calibrated(made, 5_000)
    assert same(met, made)
    assert stretch == 1.0


def test_a_time_just_above_one_that_no_cost_gets_below_is_met() -> None:
    """The host's cost counts up to where the device is the slower one: a search by secants stalls at such a bend."""
    trace = Trace()
    for _ in range(4):
        with trace.step():
            for _ in range(10):
                with trace.op("aten::mm"):
                    trace.work(20)
                    trace.launch("gemm", 22.5)
    made = program(trace)
    least = steady_step_ns(undistort(made, 4.0))
    for share in (1.003, 1.005, 1.01):
        assert steady_step_ns(by_overhead(made, share * least)[0]) == pytest.approx(share * least, rel=5e-4)
