"""Programs that wait for each other at joint operations, in either engine."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from profiles import examples
from replay.invented import Do, Op, program, programs
from replay.running import with_value

from unstall.replay.engine import ENGINES, JOBS, replay_job
from unstall.replay.meeting import Meeting
from unstall.replay.program import Code, Program, Replayed


@pytest.fixture(params=["python", "c"], autouse=True, scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    if request.param not in JOBS:
        pytest.skip("the C engine is not built: there was no C compiler when unstall was installed")
    return str(request.param)


def together(*members: list[tuple[int, int]], transfer: int = 100) -> Meeting:
    """Each operation as a list of (rank, op)."""
    flat = [pair for each in members for pair in each]
    first = np.cumsum([0, *map(len, members)])
    rank, op = (np.array([pair[i] for pair in flat], dtype=np.int64) for i in (0, 1))
    return Meeting(
        first,
        rank,
        op,
        np.ones(len(flat), dtype=np.int8),
        np.full(len(flat), transfer, dtype=np.int64),
        np.arange(len(flat)),
    )


def rank_of(*work: int, length: int = 0) -> Program:
    """A program of one collective for each number: so much host work, then the collective."""
    return program(
        Do(Code.CALL), *(Do(Code.LAUNCH, stream=0, work=each, ops=[Op(length)]) for each in work), Do(Code.CALL)
    )


def replayed(engine: str, made: list[Program], meeting: Meeting, offsets: list[int] | None = None) -> list[Replayed]:
    times, stuck = JOBS[engine](made, meeting, np.array(offsets or [0] * len(made), dtype=np.int64))
    assert not stuck
    return times


def test_everybody_waits_for_the_last(engine: str) -> None:
    made = [rank_of(10, 10), rank_of(500, 10)]
    times = replayed(engine, made, together([(0, 0), (1, 0)], [(0, 1), (1, 1)]))
    assert [each.op_start.tolist() for each in times] == [[10, 600], [500, 600]]
    assert [each.op_end.tolist() for each in times] == [[600, 700], [600, 700]]


def test_a_later_clock_delays_all_that_its_rank_does(engine: str) -> None:
    times = replayed(engine, [rank_of(10), rank_of(10)], together([(0, 0), (1, 0)]), [0, 40])
    assert [each.end.tolist() for each in times] == [[0, 10, 10], [40, 50, 50]]
    assert [each.op_end.tolist() for each in times] == [[150], [150]]


def test_each_member_ends_after_a_transfer_of_its_own(engine: str) -> None:
    meeting = replace(together([(0, 0), (1, 0)]), transfer=np.array([30, 70]))
    times = replayed(engine, [rank_of(10), rank_of(500)], meeting)
    assert [each.op_end.tolist() for each in times] == [[530], [570]]


@pytest.mark.parametrize(("receiver", "ends"), [(500, [40, 570]), (4, [40, 80])])
def test_a_member_that_waits_for_nobody_is_waited_for(engine: str, receiver: int, ends: list[int]) -> None:
    meeting = replace(together([(0, 0), (1, 0)]), transfer=np.array([30, 70]), waits=np.array([0, 1], dtype=np.int8))
    times = replayed(engine, [rank_of(10), rank_of(receiver)], meeting)
    assert [each.op_end.tolist() for each in times] == [ends[:1], ends[1:]]


def test_sends_that_wait_for_nobody_make_no_circle(engine: str) -> None:
    crossed = together([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    made = [rank_of(10, 10), rank_of(20, 20)]
    times = replayed(engine, made, replace(crossed, waits=np.array([0, 1, 1, 0], dtype=np.int8)))
    assert [each.op_end.tolist() for each in times] == [[110, 210], [120, 220]]


def test_a_host_that_waits_for_its_stream_waits_for_the_others(engine: str) -> None:
    waits = program(Do(Code.LAUNCH, stream=0, ops=[Op(5)]), Do(Code.SYNC_STREAM, stream=0, latency=3), Do(Code.CALL))
    times = replayed(engine, [waits, rank_of(500)], together([(0, 0), (1, 0)]))
    assert times[0].end.tolist() == [0, 603, 603]


def test_the_ops_of_a_launch_follow_its_joint_op(engine: str) -> None:
    several = program(Do(Code.LAUNCH, stream=0, work=4, ops=[Op(5), Op(0), Op(7)]))
    times = replayed(engine, [several, rank_of(500)], together([(0, 1), (1, 0)]))
    assert times[0].op_start.tolist() == [4, 9, 600]
    assert times[0].op_end.tolist() == [9, 600, 607]


def test_calls_in_different_orders_are_found(engine: str) -> None:
    crossed = together([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    made = [rank_of(10, 10, length=7), rank_of(20, 20, length=7)]
    assert JOBS[engine](made, crossed, np.zeros(2, np.int64))[1] == [0, 1]


def test_an_op_of_two_operations_is_found(engine: str) -> None:
    twice = together([(0, 0), (1, 0)], [(0, 0), (1, 1)])
    assert JOBS[engine]([rank_of(10), rank_of(20, 20)], twice, np.zeros(2, np.int64))[1] == [0, 1]


def test_calls_in_different_orders_are_left_out_and_counted() -> None:
    crossed = together([(0, 0), (1, 1)], [(0, 1), (1, 0)], [(0, 2), (1, 2)])
    times, left_out = replay_job([rank_of(10, 10, 10, length=7), rank_of(20, 20, 20, length=7)], crossed, [0, 0])
    assert left_out == 2
    assert [each.op_end.tolist() for each in times] == [[17, 27, 160], [27, 47, 160]]


def test_the_times_of_a_job_are_not_kept_twice(engine: str) -> None:
    count = 20_000
    made = program(*(Do(Code.CALL, call=1) for _ in range(count)))
    tracemalloc.start()
    try:
        replayed(engine, [made], together())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The start, the end, and what a RECORD would have marked: 8 bytes each. Lists of Python take more.
    assert engine == "python" or peak < 28 * count


@examples(60)
@given(data=st.data())
def test_an_operation_that_is_left_out_is_none(engine: str, data: st.DataObject) -> None:
    """The times are those of a job that lacks the operations, in which nobody waits in a circle."""
    count, ranks = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 4))
    orders = [data.draw(st.permutations(range(count))) for _ in range(ranks)]
    made = [rank_of(*data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))) for _ in range(ranks)]
    among = [data.draw(st.sets(st.integers(0, ranks - 1), min_size=1)) for _ in range(count)]
    meeting = together(*([(rank, orders[rank][each]) for rank in sorted(some)] for each, some in enumerate(among)))
    # A member that waits for nobody goes on at once, so it lasts as long as if its operation is left out.
    waits = np.array([data.draw(st.integers(0, 1)) for _ in meeting.op], dtype=np.int8)
    meeting = replace(meeting, waits=waits, transfer=np.where(waits, meeting.transfer, 0))
    times, left_out = JOBS[engine](made, meeting, np.zeros(ranks, np.int64))
    rest = meeting.only(~np.isin(np.arange(count), left_out))
    assert [columns(each) for each in times] == [columns(each) for each in replayed(engine, made, rest)]
    found = [JOBS[name](made, meeting, np.zeros(ranks, np.int64))[1] for name in JOBS]
    assert all(each == left_out for each in found)


def test_many_circles_take_one_replay(engine: str) -> None:
    pairs = 10_000
    crossed = together(*([(0, 2 * at + way), (1, 2 * at + 1 - way)] for at in range(pairs) for way in (0, 1)))
    rank = rank_of(*[10] * (2 * pairs), length=7)
    times, left_out = JOBS[engine]([rank, rank], crossed, np.zeros(2, np.int64))
    assert len(left_out) == 2 * pairs
    assert columns(times[0]) == columns(times[1]) == columns(ENGINES[engine](rank))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"first": np.array([0, 1])}, "the operations' members end at 1, and there are 2"),
        ({"first": np.array([1, 2])}, "operation 0: its members begin at 1"),
        ({"first": np.array([0, 3, 2])}, "operation 1: its members begin at 3"),
        ({"first": np.zeros(0, np.int64)}, "the columns of joint operations differ in length"),
        ({"rank": np.array([0, 2])}, "member 1: program 2 is none of 2"),
        ({"rank": np.array([-1, 0])}, "member 0: program -1 is none of 2"),
        ({"op": np.array([0, 1])}, "member 1: op 1 is none of its program's 1"),
        ({"op": np.array([0])}, "the columns of joint operations differ in length"),
        ({"waits": np.ones(1, np.int8)}, "the columns of joint operations differ in length"),
        ({"waits": np.ones(2)}, "waits must be one contiguous column of int8"),
        ({"transfer": np.array([5, -1])}, "member 1: its transfer is negative, -1 ns"),
        ({"transfer": np.array([1 << 61, 1 << 61])}, "the programs' times add up to more than 2**62 ns"),
        ({"transfer": np.array([0.5, 1])}, "transfer must be one contiguous column of int64"),
    ],
)
def test_joint_operations_that_are_none_are_refused(engine: str, changes: dict[str, Any], says: str) -> None:
    meeting = replace(together([(0, 0), (1, 0)]), **changes)
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        JOBS[engine]([rank_of(1), rank_of(1)], meeting, np.zeros(2, np.int64))


def test_programs_that_are_none_are_refused(engine: str) -> None:
    meeting = together([(0, 0), (1, 0)])
    with pytest.raises(ValueError, match="program 1: it begins at -3 ns"):
        JOBS[engine]([rank_of(1), rank_of(1)], meeting, np.array([0, -3]))
    with pytest.raises(ValueError, match="instruction 1: its work is negative, -5 ns"):
        JOBS[engine]([rank_of(1), rank_of(-5)], meeting, np.zeros(2, np.int64))
    half = with_value(rank_of(1), "instructions", "work", 0, 1 << 61)
    with pytest.raises(ValueError, match="the program's times add up to more than 2"):
        JOBS[engine]([half, half], meeting, np.zeros(2, np.int64))


@examples(40)
@given(data=st.data(), made=st.lists(programs(), min_size=1, max_size=4))
def test_operations_of_one_rank_change_nothing(engine: str, data: st.DataObject, made: list[Program]) -> None:
    pairs = [(rank, int(op)) for rank, each in enumerate(made) for op in np.flatnonzero(each.ops.engine < 0)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    lengths = np.array([made[rank].ops.duration[op] for rank, op in chosen], dtype=np.int64)
    times = replayed(engine, made, replace(together(*([pair] for pair in chosen)), transfer=lengths))
    alone = [ENGINES[engine](each) for each in made]
    assert [columns(each) for each in times] == [columns(each) for each in alone]


@examples(30)
@given(data=st.data(), made=st.lists(programs(), min_size=2, max_size=4))
def test_engines_agree_and_a_transfer_begins_when_the_last_has_arrived(
    data: st.DataObject, made: list[Program]
) -> None:
    most = min(len(each.ops) for each in made)
    steps = sorted(data.draw(st.sets(st.integers(0, most - 1), max_size=5))) if most else []
    meeting = together(*([(rank, op) for rank in range(len(made))] for op in steps), transfer=1000)
    offsets = np.array(data.draw(st.lists(st.integers(0, 50), min_size=len(made), max_size=len(made))))
    found = [JOBS[name](made, meeting, offsets) for name in JOBS]
    assert [[columns(each) for each in times] for times, _ in found[1:]] == [
        [columns(each) for each in times] for times, _ in found[:-1]
    ]
    times, stuck = found[0]
    assert not stuck
    for op in steps:
        arrived = max(int(each.op_start[op]) for each in times)
        assert {int(each.op_end[op]) for each in times} == {arrived + 1000}


def columns(times: Replayed) -> list[list[int]]:
    return [column.tolist() for column in astuple(times)]
