"""A program that is fed part by part has the times that it has at once, in either engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from profiles import examples
from replay.invented import Do, Op, program, programs, random_program
from replay.running import with_columns

from unstall.replay.engine import ENGINES, RESUMABLE
from unstall.replay.program import Code, Instructions, Ops, Program


@pytest.fixture(params=["python", "c"], scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    if request.param not in RESUMABLE:
        pytest.skip("the C engine is not built: there was no C compiler when unstall was installed")
    return str(request.param)


def part(whole: Program, first: int, stop: int, **changes: Any) -> Program:
    """The instructions first … stop, and their ops."""
    do, ops = whole.instructions, whole.ops
    before, after = (int(do.ops[at - 1]) if at else 0 for at in (first, stop))
    mine = {name: getattr(do, name)[first:stop] for name in Instructions.__struct_fields__}
    return replace(
        whole,
        instructions=Instructions(**{**mine, "ops": mine["ops"] - before}),
        ops=Ops(**{name: getattr(ops, name)[before:after] for name in Ops.__struct_fields__}),
        **changes,
    )


def fed(engine: str, whole: Program, cuts: list[int], *, fills_gaps: bool = False) -> list[list[int]]:
    replay = RESUMABLE[engine](whole.capacity, fills_gaps)
    times: list[list[int]] = [[], [], [], []]
    for first, stop in zip([0, *cuts], [*cuts, len(whole.instructions)], strict=True):
        for column, more in zip(times, astuple(replay.feed(part(whole, first, stop))), strict=True):
            column += more.tolist()
    return times


@examples(100)
@given(data=st.data(), whole=programs())
def test_cuts_change_nothing(engine: str, data: st.DataObject, whole: Program) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole.instructions)), max_size=5)))
    at_once = [column.tolist() for column in astuple(ENGINES[engine](whole))]
    assert fed(engine, whole, cuts) == at_once


@pytest.mark.parametrize("fills_gaps", [False, True])
def test_cuts_of_a_long_program_change_nothing(engine: str, fills_gaps: bool) -> None:
    whole = random_program(3_000, seed=5, capacity=40)
    at_once = fed(engine, whole, [], fills_gaps=fills_gaps)
    assert fed(engine, whole, [1, 2, 2, 900, 2_000], fills_gaps=fills_gaps) == at_once


@examples(100)
@given(whole=programs())
def test_both_engines_fill_the_same_gaps(whole: Program) -> None:
    if "c" in RESUMABLE:
        assert fed("c", whole, [], fills_gaps=True) == fed("python", whole, [], fills_gaps=True)


@examples(100)
@given(whole=programs())
def test_an_engine_that_fills_gaps_serves_ops_without_a_share_one_at_a_time(engine: str, whole: Program) -> None:
    whole = with_columns(whole, ops_share=np.zeros_like(whole.ops.share))
    _, _, start, end = (np.array(column, np.int64) for column in fed(engine, whole, [], fills_gaps=True))
    for number in range(whole.engines):
        mine = np.flatnonzero((whole.ops.engine == number) & (whole.ops.duration > 0))
        mine = mine[np.argsort(start[mine], kind="stable")]
        assert (start[mine][1:] >= end[mine][:-1]).all()


def test_an_op_goes_before_one_that_must_still_wait(engine: str) -> None:
    whole = program(
        Do(Code.LAUNCH, stream=0, ops=[Op(100)]),
        Do(Code.RECORD, stream=0),
        Do(Code.STREAM_WAIT, stream=1, target=1),
        Do(Code.LAUNCH, stream=1, ops=[Op(10, stream=1, engine=0)]),
        Do(Code.LAUNCH, stream=2, ops=[Op(30, stream=2, engine=0)]),
        devices=(0, 0, 0),
        engines=1,
    )
    assert fed(engine, whole, [])[2] == [0, 100, 110]
    assert fed(engine, whole, [], fills_gaps=True)[2] == [0, 100, 0]


def test_threads_streams_and_engines_may_come_later(engine: str) -> None:
    whole = program(
        Do(Code.LAUNCH, stream=0, call=5, ops=[Op(100, engine=0)]),
        Do(Code.RECORD, stream=0),
        Do(Code.JOIN, thread=1, target=1),
        Do(Code.STREAM_WAIT, thread=1, stream=1, target=1),
        Do(Code.LAUNCH, thread=1, stream=1, ops=[Op(7, stream=1, engine=1, after=0)]),
        Do(Code.SYNC_DEVICE, stream=-1),
        threads=2,
        devices=(0, 0),
        engines=2,
    )
    replay = RESUMABLE[engine](whole.capacity, False)
    few = {"threads": 1, "engines": 1, "device_of_stream": whole.device_of_stream[:1].copy()}
    replay.feed(part(whole, 0, 2, **few))
    assert (replay.clock(0), replay.done(0), replay.marked(1), replay.marked(0)) == (5, 105, 105, 0)
    assert replay.feed(part(whole, 2, 6)).end.tolist() == [5, 5, 5, 112]
    assert (replay.clock(0), replay.clock(1), replay.done(1)) == (112, 5, 112)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"threads": 0}, "there were 1 threads before, and now 0"),
        ({"engines": 0}, "there were 2 engines before, and now 0"),
        ({"device_of_stream": np.zeros(1, np.int32)}, "there were 2 streams before, and now 1"),
        ({"device_of_stream": np.array([0, 1], np.int32)}, "stream 1 is of device 1, and was of 0"),
    ],
)
def test_nothing_may_go_away(engine: str, changes: dict[str, Any], sentence: str) -> None:
    whole = program(Do(Code.CALL), Do(Code.CALL), devices=(0, 0), engines=2)
    replay = RESUMABLE[engine](whole.capacity, False)
    replay.feed(part(whole, 0, 1))
    with pytest.raises(ValueError, match=sentence):
        replay.feed(part(whole, 1, 2, **changes))


def test_a_part_that_is_refused_counts_as_not_fed(engine: str) -> None:
    replay = RESUMABLE[engine](2, False)
    replay.feed(program(Do(Code.CALL, work=7)))
    with pytest.raises(ValueError, match="instruction 2: there is no code 9"):
        replay.feed(program(Do(Code.CALL, work=1), Do(9)))
    assert replay.clock(0) == 7
    assert replay.feed(program(Do(Code.CALL, work=1))).end.tolist() == [8]


def test_times_of_all_parts_together_must_not_overflow(engine: str) -> None:
    replay = RESUMABLE[engine](2, False)
    replay.feed(program(Do(Code.CALL, work=1 << 61)))
    with pytest.raises(ValueError, match="add up to more than"):
        replay.feed(program(Do(Code.CALL, work=(1 << 61) + 1)))


def test_what_was_never_there_cannot_be_asked_for(engine: str) -> None:
    replay = RESUMABLE[engine](2, False)
    replay.feed(program(Do(Code.CALL)))
    for ask, what in ((replay.clock, "thread 1 is none of 1"), (replay.done, "stream 1 is none of 1")):
        with pytest.raises(IndexError, match=what):
            ask(1)
    with pytest.raises(IndexError, match="instruction -1 is none of 1"):
        replay.marked(-1)


def test_both_engines_forget_the_same_gaps() -> None:
    whole = random_program(5_000, seed=6)
    if "c" in RESUMABLE:
        assert fed("c", whole, [], fills_gaps=True) == fed("python", whole, [], fills_gaps=True)
