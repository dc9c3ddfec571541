"""What holds for any program, in either engine."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, assume, given
from hypothesis import strategies as st
from msgspec.structs import astuple
from profiles import examples
from replay.invented import WAITS, programs
from replay.running import Engine, with_columns, with_value

from unstall.replay.program import Code, Program, Replayed

A_FEW = examples(50, phases=set(Phase) - {Phase.explain})
INSTRUCTION_TIMES = ("work", "call", "latency")
OP_TIMES = ("duration", "latency", "gap", "lag")
INCREASES = st.integers(1, 100) | st.integers(1, 10**7)


def never_earlier(times: Replayed, than: Replayed) -> bool:
    return all((one >= other).all() for one, other in zip(astuple(times), astuple(than), strict=True))


@A_FEW
@given(data=st.data(), program=programs())
def test_a_longer_host_never_makes_anything_earlier(engine: Engine, data: st.DataObject, program: Program) -> None:
    assume(len(program.instructions))
    name = data.draw(st.sampled_from(INSTRUCTION_TIMES))
    row = data.draw(st.integers(0, len(program.instructions) - 1))
    longer = int(getattr(program.instructions, name)[row]) + data.draw(INCREASES)
    slower = with_value(program, "instructions", name, row, longer)
    assert never_earlier(engine(slower), than=engine(program))


@A_FEW
@given(data=st.data(), program=programs())
def test_a_longer_op_never_makes_anything_earlier(engine: Engine, data: st.DataObject, program: Program) -> None:
    assume(len(program.ops))
    name = data.draw(st.sampled_from(OP_TIMES))
    row = data.draw(st.integers(0, len(program.ops) - 1))
    slower = with_value(program, "ops", name, row, int(getattr(program.ops, name)[row]) + data.draw(INCREASES))
    assert never_earlier(engine(slower), than=engine(program))


@A_FEW
@given(program=programs(), capacity=st.integers(1, 5))
def test_a_longer_queue_never_makes_anything_later(engine: Engine, program: Program, capacity: int) -> None:
    shorter, longer = (with_columns(program, capacity=size) for size in (capacity, capacity + 1))
    assert never_earlier(engine(shorter), than=engine(longer))


@A_FEW
@given(data=st.data(), program=programs())
def test_waiting_less_never_makes_anything_later(engine: Engine, data: st.DataObject, program: Program) -> None:
    waits = np.flatnonzero(np.isin(program.instructions.code, WAITS))
    assume(len(waits))
    row = data.draw(st.sampled_from(waits.tolist()))
    without = with_value(program, "instructions", "code", row, Code.CALL)
    assert never_earlier(engine(program), than=engine(without))


@A_FEW
@given(program=programs())
def test_instructions_of_a_thread_follow_each_other(engine: Engine, program: Program) -> None:
    times = engine(program)
    assert (times.end >= times.start).all()
    for thread in range(program.threads):
        mine = program.instructions.thread == thread
        assert (times.start[mine][1:] >= times.end[mine][:-1]).all()
        assert (times.start[mine][:1] == program.instructions.work[mine][:1]).all()


@A_FEW
@given(program=programs())
def test_ops_of_a_stream_never_overlap(engine: Engine, program: Program) -> None:
    times = engine(program)
    assert (times.op_end - times.op_start == program.ops.duration).all()
    for stream in range(len(program.device_of_stream)):
        mine = program.ops.stream == stream
        assert (times.op_start[mine][1:] >= times.op_end[mine][:-1] + program.ops.gap[mine][1:]).all()


@A_FEW
@given(program=programs())
def test_ops_of_a_copy_engine_never_overlap(engine: Engine, program: Program) -> None:
    times = engine(program)
    for number in range(program.engines):
        mine = program.ops.engine == number
        assert (times.op_start[mine][1:] >= times.op_end[mine][:-1]).all()


@A_FEW
@given(program=programs())
def test_no_op_starts_before_its_launch(engine: Engine, program: Program) -> None:
    times = engine(program)
    assert (times.op_start >= times.start[program.launcher]).all()


@A_FEW
@given(program=programs())
def test_no_op_starts_before_the_one_that_it_follows_lets_it(engine: Engine, program: Program) -> None:
    times = engine(program)
    follows = program.ops.after >= 0
    earliest = times.op_end[program.ops.after[follows]] + program.ops.lag[follows]
    assert (times.op_start[follows] >= earliest).all()


@A_FEW
@given(program=programs(), capacity=st.integers(1, 4))
def test_no_more_launches_are_outstanding_than_fit(engine: Engine, program: Program, capacity: int) -> None:
    times = engine(with_columns(program, capacity=capacity))
    do = program.instructions
    done = np.zeros(len(do), dtype=np.int64)
    np.maximum.at(done, program.launcher, times.op_end)
    launches = np.flatnonzero(do.code == Code.LAUNCH)
    for launch in launches:
        before = launches[(do.stream[launches] == do.stream[launch]) & (launches <= launch)]
        assert (done[before] > times.end[launch]).sum() <= capacity


@A_FEW
@given(program=programs())
def test_a_program_replayed_again_is_the_same(engine: Engine, program: Program) -> None:
    first = engine(program)
    assert never_earlier(first, than=engine(program))
    assert never_earlier(engine(program), than=first)
