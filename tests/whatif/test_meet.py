"""Meeting a step time that was measured without the recorder: laws of any program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from programs import Program as Made
from programs import programs
from replay.recorded import A_FEW, Trace, program
from whatif.made import same

from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.whatif.calibrate import meet, meet_alone
from unstall.whatif.undistort import undistort

_NS = 20  # what rounding each of the times of a step to a nanosecond may come to


def alone(made: Program, plain_step_ns: float) -> tuple[Program, float]:
    do, ops = made.instructions, made.ops
    return meet_alone(made, plain_step_ns, np.ones(len(ops), np.bool_), np.zeros(len(do), np.bool_))


@A_FEW
@given(programs(), st.floats(0, 1))
def test_a_time_that_some_of_the_recorders_cost_explains_is_met(made_by: Made, share: float) -> None:
    made = program(made_by)
    recorded, least = steady_step_ns(made), steady_step_ns(undistort(made, 4.0))
    plain_ns = least + share * (recorded - least)
    met, stretch = meet(made, plain_ns)
    assert steady_step_ns(met) == pytest.approx(plain_ns, rel=0.005, abs=_NS)
    assert stretch == 1.0 or least > 0.995 * plain_ns


@A_FEW
@given(programs(), st.floats(0.2, 5))
def test_no_time_makes_it_stray_further_than_as_it_was(made_by: Made, share: float) -> None:
    made = undistort(program(made_by))
    before_ns = steady_step_ns(made)
    plain_ns = share * before_ns
    assume(plain_ns > 0)
    met, stretch = alone(made, plain_ns)
    off_ns = abs(steady_step_ns(met) - plain_ns)
    assert same(met, made) or off_ns <= abs(before_ns - plain_ns) / 2
    assert 0.75 <= stretch <= 1.25


@A_FEW
@given(programs(), st.floats(0.7, 1.2), st.floats(0.9, 1.1))
def test_where_host_and_device_changed_together_their_time_is_met(made_by: Made, host: float, device: float) -> None:
    """By however much: times that some pair explains."""
    host = host if (host > 1) == (device > 1) else 1.0
    made = undistort(program(made_by))
    do, ops = made.instructions, made.ops
    do.work[:], do.call[:] = np.rint(do.work * host), np.rint(do.call * host)
    ops.duration[:] = np.rint(ops.duration * device)
    plain_ns = steady_step_ns(made)
    assume(plain_ns > 0)
    met, _ = alone(undistort(program(made_by)), plain_ns)
    assert steady_step_ns(met) == pytest.approx(plain_ns, rel=0.01, abs=_NS)


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
        assert steady_step_ns(meet(made, share * least)[0]) == pytest.approx(share * least, rel=5e-4)
