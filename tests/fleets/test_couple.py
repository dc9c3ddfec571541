"""Programs of ranks, coupled at what they do together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from profiles import examples
from replay.invented import Do, Op, program, programs

from unstall.fleets.couple import Meeting, couple
from unstall.replay.engine import replay
from unstall.replay.program import Code, Program


def together(*members: list[tuple[int, int]], transfer: int = 100) -> Meeting:
    """Each operation as a list of (rank, op)."""
    flat = [pair for each in members for pair in each]
    first = np.cumsum([0, *map(len, members)])
    rank, op = (np.array([pair[i] for pair in flat], dtype=np.int64) for i in (0, 1))
    return Meeting(first, rank, op, np.full(len(flat), transfer, dtype=np.int64))


def rank_of(*work: int, length: int = 0) -> Program:
    """A program of one collective for each number: so much host work, then the collective."""
    return program(
        Do(Code.CALL), *(Do(Code.LAUNCH, stream=0, work=each, ops=[Op(length)]) for each in work), Do(Code.CALL)
    )


def test_everybody_waits_for_the_last() -> None:
    coupled = couple([rank_of(10, 10), rank_of(500, 10)], together([(0, 0), (1, 0)], [(0, 1), (1, 1)]))
    times = replay(coupled.program)
    assert [times.op_start[at][0] for at in coupled.arrives] == [10, 500]
    assert [times.op_end[at][0] for at in coupled.ends] == [600, 600]
    assert coupled.step_ends(times).tolist() == [[700], [700]]


def test_a_later_clock_delays_all_that_its_rank_does() -> None:
    coupled = couple([rank_of(10), rank_of(10)], together([(0, 0), (1, 0)]), offsets=[0, 40])
    assert [int(replay(coupled.program).op_end[at][0]) for at in coupled.ends] == [150, 150]


def test_calls_in_different_orders_are_left_out_and_counted() -> None:
    crossed = together([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    coupled = couple([rank_of(10, 10, length=7), rank_of(20, 20, length=7)], crossed)
    assert coupled.uncoupled == 2
    assert len(coupled.program.ops) == 4


@examples(40)
@given(data=st.data(), made=st.lists(programs(), min_size=1, max_size=4))
def test_operations_of_one_rank_change_nothing(data: st.DataObject, made: list[Program]) -> None:
    made = [one_device(each) for each in made if len(each.instructions)]
    if not made:
        return
    pairs = [(rank, op) for rank, each in enumerate(made) for op in joinable(each)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    meeting = together(*([pair] for pair in chosen))
    lengths = np.array([made[rank].ops.duration[op] for rank, op in chosen], dtype=np.int64)
    coupled = couple(made, replace(meeting, transfer=lengths))
    times = replay(coupled.program)
    for rank, each in enumerate(made):
        alone = replay(each)
        assert times.op_end[coupled.ends[rank]].tolist() == alone.op_end.tolist()
        assert times.op_start[coupled.arrives[rank]].tolist() == alone.op_start.tolist()
        assert times.end[coupled.row_of[rank]].tolist() == alone.end.tolist()


@examples(30)
@given(data=st.data(), made=st.lists(programs(), min_size=2, max_size=4))
def test_a_transfer_begins_when_the_last_has_arrived(data: st.DataObject, made: list[Program]) -> None:
    made = [one_device(each) for each in made if len(each.instructions)]
    counts = [len(each.ops) for each in made]
    most = min(counts, default=0)
    steps = sorted(data.draw(st.sets(st.integers(0, most - 1), max_size=5))) if most else []
    meeting = together(*([(rank, op) for rank in range(len(made))] for op in steps), transfer=1000)
    if not made:
        return
    coupled = couple(made, meeting)
    times = replay(coupled.program)
    for op in steps if not coupled.uncoupled else ():
        arrived = max(int(times.op_start[each[op]]) for each in coupled.arrives)
        assert {int(times.op_end[each[op]]) for each in coupled.ends} == {arrived + 1000}


def joinable(made: Program) -> list[int]:
    """Ops without an engine, in launches whose ops are all on the launch's stream: others are cut with some error."""
    launcher, ops = made.launcher, made.ops
    elsewhere = np.bincount(launcher, ops.stream != made.instructions.stream[launcher], len(made.instructions))
    return np.flatnonzero((ops.engine < 0) & (elsewhere[launcher] == 0)).tolist()


def one_device(made: Program) -> Program:
    """Plain ops of a program whose launches have room, on streams of one device."""
    ops, do = made.ops, made.instructions
    return replace(
        made,
        capacity=1022,
        device_of_stream=np.zeros_like(made.device_of_stream),
        instructions=replace(do, stream=np.where(do.code == Code.SYNC_DEVICE, 0, do.stream).astype(np.int32)),
        ops=replace(ops, share=np.zeros_like(ops.share)),
    )
