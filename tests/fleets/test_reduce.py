"""A reduced program replays to the same times at what is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli.command import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from profiles import examples
from replay.invented import Do, Op, program, programs, random_program

from unstall.fleets.reduce import _touches, reduce
from unstall.locate.steps import find_steps
from unstall.read import load
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.replay.program import Code, Program

DATA = Path(__file__).parent.parent / "data"


def with_marks(made: Program) -> Program:
    """Marks must be calls, as in programs of timelines."""
    do = made.instructions
    code = do.code.copy()
    ends = np.flatnonzero(code == Code.CALL)
    if not len(ends):
        return made
    return replace(made, step_starts=ends[:1], step_ends=ends[-1:])


def assert_same_times(made: Program, keep: np.ndarray) -> None:
    before, reduced = replay(made), reduce(made, keep)
    after = replay(reduced.program)
    last = int(made.step_ends[-1])
    marks = [*made.step_starts, *made.step_ends]
    kept = np.flatnonzero(keep & (made.launcher <= last))
    assert (after.end[reduced.row_of[marks]] == before.end[marks]).all()
    assert (after.op_start[reduced.op_of[kept]] == before.op_start[kept]).all()
    assert (after.op_end[reduced.op_of[kept]] == before.op_end[kept]).all()
    waits = np.flatnonzero(np.isin(made.instructions.code[: last + 1], (Code.SYNC_STREAM, Code.SYNC_EVENT, Code.JOIN)))
    assert (after.end[reduced.row_of[waits]] == before.end[waits]).all()


@examples(300)
@given(data=st.data(), made=programs())
def test_times_stay_the_same(data: st.DataObject, made: Program) -> None:
    if not len(made.instructions):
        return
    made = with_marks(made)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(made.ops), max_size=len(made.ops))), dtype=np.bool_)
    assert_same_times(made, keep)


@pytest.mark.parametrize("name", ["ddp_overlapped", "queue_full", "waits", "decode_graph", "offload_ahead"])
def test_recorded_programs_keep_their_times(name: str) -> None:
    timeline = load(
        next(folder / f"{name}.json.gz" for folder in (DATA, EXAMPLES) if (folder / f"{name}.json.gz").exists())
    )
    steps = find_steps(timeline)
    made = build(timeline, steps.start, steps.end)
    assert_same_times(made, np.arange(len(made.ops)) % 7 == 0)


def test_a_long_program_becomes_short() -> None:
    made = random_program(20_000, seed=3, capacity=100_000, threads=2)
    keep = np.zeros(len(made.ops), dtype=np.bool_)
    keep[::500] = True
    assert_same_times(made, keep)


def test_a_run_of_launches_becomes_one() -> None:
    made = program(
        Do(Code.CALL),
        *(Do(Code.LAUNCH, stream=0, work=3, call=5, ops=[Op(20, latency=2, gap=1)]) for _ in range(10)),
        Do(Code.LAUNCH, stream=0, work=3, call=5, ops=[Op(100, latency=2, gap=1)]),
        Do(Code.CALL, work=7),
    )
    keep = np.arange(11) == 10
    reduced = reduce(made, keep).program
    assert len(reduced.instructions) == 4
    assert reduced.ops.duration.tolist() == [10 * 20 + 9 * 1, 100]
    assert_same_times(made, keep)


def test_the_constraints_of_a_merged_op_give_its_end_as_recorded() -> None:
    made = program(
        Do(Code.CALL),
        *(Do(Code.LAUNCH, stream=0, work=3, call=n, ops=[Op(9 - n, latency=2, gap=1)]) for n in range(9)),
        Do(Code.CALL),
    )
    reduced = reduce(made, np.zeros(9, dtype=np.bool_))
    one = np.ones(1)
    assert replay(reduced.program).op_end.tolist() == reduced.arrivals.ends(one, one).tolist()


def test_launches_become_few_also_where_their_queue_fills() -> None:
    launch = Do(Code.LAUNCH, stream=0, work=3, call=5, ops=[Op(20, latency=2)])
    made = program(Do(Code.CALL), *[launch] * 5_000, Do(Code.SYNC_STREAM, stream=0), Do(Code.CALL), capacity=1_000)
    assert replay(made).end[-3] > 5_000 * 8  # the last launch waited for room
    keep = np.arange(5_000) % 2_500 == 2_499
    reduced = reduce(made, keep)
    assert len(reduced.program.instructions) < 30
    assert_same_times(made, keep)


def test_launches_stay_where_the_queue_decides() -> None:
    """Another stream gets its work as soon as the full queue has room: in pieces, it would get it at another time."""
    launch = Do(Code.LAUNCH, stream=0, work=3, call=5, ops=[Op(20, latency=2)])
    other = Do(Code.LAUNCH, stream=1, work=3, call=5, ops=[Op(7, latency=2)])
    made = program(
        Do(Code.CALL), *[launch] * 50, other, *[launch] * 50, other, Do(Code.CALL), devices=(0, 0), capacity=10
    )
    keep = made.ops.stream == 1
    assert len(reduce(made, keep).program.instructions) > 100
    assert_same_times(made, keep)


def test_syncs_of_a_device_with_many_streams_cost_no_more_than_what_is_launched_on_these() -> None:
    launch = [Do(Code.LAUNCH, stream=stream, ops=(Op(5, stream=stream),)) for stream in range(50)]
    sync = [Do(Code.SYNC_DEVICE, stream=device) for device in (0, -1, 1) for _ in range(50)]
    made = program(*launch, *sync, *launch[:2], devices=[0] * 49 + [1])
    streams, rows = _touches(made, np.zeros(len(made.instructions), dtype=np.bool_))
    assert len(rows) == 50 + 2 * 2  # not another 50 * 150
    assert list(zip(streams.tolist(), rows.tolist(), strict=True))[:6] == [
        (0, 0), (0, 149), (0, 200), (1, 1), (1, 149), (1, 201),
    ]  # fmt: skip
