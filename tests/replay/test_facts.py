"""What each instruction does, in figures worked out by hand."""

from __future__ import annotations

import pytest
from replay.invented import Do, Op, program
from replay.running import Engine

from unstall.replay.program import Code, Program


def host(engine: Engine, program: Program) -> list[tuple[int, int]]:
    """By instruction: when its call begins and when it ends."""
    times = engine(program)
    return list(zip(times.start.tolist(), times.end.tolist(), strict=True))


def device(engine: Engine, program: Program) -> list[tuple[int, int]]:
    """By op: start and end."""
    times = engine(program)
    return list(zip(times.op_start.tolist(), times.op_end.tolist(), strict=True))


def launch(*ops: Op, stream: int = 0, thread: int = 0, work: int = 0, call: int = 0) -> Do:
    return Do(Code.LAUNCH, thread, stream, work=work, call=call, ops=ops)


def test_nothing_takes_no_time(engine: Engine) -> None:
    assert host(engine, program(threads=0, devices=())) == []


def test_a_call_begins_after_the_work_before_it(engine: Engine) -> None:
    calls = program(Do(Code.CALL, work=3, call=4), Do(Code.CALL, work=2, call=1))
    assert host(engine, calls) == [(3, 7), (9, 10)]


def test_a_call_may_hold_any_stream_and_target(engine: Engine) -> None:
    assert host(engine, program(Do(Code.CALL, stream=99, target=99, call=1))) == [(0, 1)]


def test_each_thread_has_a_clock_of_its_own(engine: Engine) -> None:
    calls = program(Do(Code.CALL, 0, call=100), Do(Code.CALL, 1, call=5), Do(Code.CALL, 1, work=1), threads=2)
    assert host(engine, calls) == [(0, 100), (0, 5), (6, 6)]


def test_an_op_arrives_after_its_launch_has_returned(engine: Engine) -> None:
    one = program(launch(Op(100, latency=2), work=10, call=5))
    assert host(engine, one) == [(10, 15)]
    assert device(engine, one) == [(17, 117)]


@pytest.mark.parametrize(("latency", "start"), [(-3, 12), (-5, 10), (-100, 10)])
def test_an_op_that_arrives_early_starts_no_sooner_than_its_launch(engine: Engine, latency: int, start: int) -> None:
    assert device(engine, program(launch(Op(100, latency=latency), work=10, call=5))) == [(start, start + 100)]


def test_ops_of_a_stream_start_a_gap_after_each_other(engine: Engine) -> None:
    three = program(launch(Op(100), call=5), launch(Op(10, gap=4)), launch(Op(1, gap=4), work=200))
    assert device(engine, three) == [(5, 105), (109, 119), (205, 206)]


def test_streams_run_side_by_side(engine: Engine) -> None:
    two = program(launch(Op(100)), launch(Op(10, stream=1), stream=1, call=3), devices=(0, 0))
    assert device(engine, two) == [(0, 100), (3, 13)]


def test_a_graph_follows_the_stream_that_it_is_launched_on(engine: Engine) -> None:
    graph = launch(Op(20, stream=1), Op(5, stream=1, gap=1), Op(7, stream=2, gap=2))
    assert device(engine, program(launch(Op(100)), graph, devices=(0, 0, 0))) == [
        (0, 100),
        (100, 120),
        (121, 126),
        (102, 109),
    ]


def test_what_comes_after_a_graph_follows_all_of_it(engine: Engine) -> None:
    graph = launch(Op(20, stream=1), Op(50))
    then = program(graph, launch(Op(1)), launch(Op(1, stream=1), stream=1), devices=(0, 0))
    assert device(engine, then) == [(0, 20), (0, 50), (50, 51), (20, 21)]


@pytest.mark.parametrize(("lag", "start"), [(3, 103), (0, 100), (-10, 90), (-100, 0)])
def test_an_op_follows_another_streams(engine: Engine, lag: int, start: int) -> None:
    two = program(launch(Op(100)), launch(Op(10, stream=1, after=0, lag=lag), stream=1), devices=(0, 0))
    assert device(engine, two)[1] == (start, start + 10)


def test_an_engine_serves_one_copy_at_a_time(engine: Engine) -> None:
    copies = program(
        launch(Op(100, engine=0)),
        launch(Op(10, stream=1, engine=0, gap=9), stream=1),
        launch(Op(10, stream=2, engine=1), stream=2),
        launch(Op(10, stream=2), stream=2),
        devices=(0, 0, 0),
        engines=2,
    )
    assert device(engine, copies) == [(0, 100), (100, 110), (0, 10), (10, 20)]


def test_a_stream_wait_goes_on_when_the_host_waited(engine: Engine) -> None:
    waits = program(launch(Op(100)), Do(Code.SYNC_STREAM, stream=0, call=3, latency=6), Do(Code.CALL, work=1))
    assert host(engine, waits) == [(0, 0), (0, 106), (107, 107)]


def test_a_wait_for_what_is_done_takes_as_long_as_its_call(engine: Engine) -> None:
    waits = program(launch(Op(5)), Do(Code.SYNC_STREAM, stream=0, work=50, call=3, latency=6))
    assert host(engine, waits)[1] == (50, 53)


def test_a_wait_returns_early_but_not_before_its_call_is_made(engine: Engine) -> None:
    early = program(launch(Op(100)), Do(Code.SYNC_STREAM, stream=0, call=3, latency=-20))
    assert host(engine, early)[1] == (0, 80)
    at_once = program(launch(Op(100)), Do(Code.SYNC_STREAM, stream=0, call=3, latency=-200))
    assert host(engine, at_once)[1] == (0, 3)


def test_a_host_waits_for_one_stream_only(engine: Engine) -> None:
    ops = (launch(Op(100)), launch(Op(40, stream=1), stream=1))
    waits = program(*ops, Do(Code.SYNC_STREAM, stream=1, latency=1), devices=(0, 0))
    assert host(engine, waits)[2] == (0, 41)


@pytest.mark.parametrize(("which", "end"), [(0, 101), (3, 301), (-1, 301), (1, 2)])
def test_a_host_waits_for_all_streams_of_a_device(engine: Engine, which: int, end: int) -> None:
    ops = [launch(Op(length, stream=number), stream=number) for number, length in enumerate((100, 300, 50))]
    waits = program(*ops, Do(Code.SYNC_DEVICE, stream=which, call=2, latency=1), devices=(0, 3, 0))
    assert host(engine, waits)[3] == (0, end)


def test_a_device_is_done_after_what_a_graph_of_another_ran_on_it(engine: Engine) -> None:
    graph = launch(Op(20, stream=1), Op(50))
    assert host(engine, program(graph, Do(Code.SYNC_DEVICE, stream=1), devices=(0, 1)))[1] == (0, 20)


def test_without_streams_a_wait_for_every_device_is_over_at_once(engine: Engine) -> None:
    assert host(engine, program(Do(Code.SYNC_DEVICE, call=2, latency=50), devices=())) == [(0, 2)]


def test_a_record_marks_what_was_launched_before_it(engine: Engine) -> None:
    ops = (launch(Op(100)), Do(Code.RECORD, stream=0, call=1), launch(Op(1000)))
    waits = program(*ops, Do(Code.SYNC_EVENT, target=1, latency=6))
    assert host(engine, waits)[1:] == [(0, 1), (1, 1), (1, 106)]


def test_a_stream_goes_on_after_what_the_record_marked(engine: Engine) -> None:
    waits = program(
        launch(Op(100)),
        Do(Code.RECORD, stream=0),
        launch(Op(5, stream=1), stream=1),
        Do(Code.STREAM_WAIT, stream=1, target=1, latency=8, call=2),
        launch(Op(10, stream=1, gap=50), stream=1),
        devices=(0, 0),
    )
    assert host(engine, waits)[3] == (0, 2)
    assert device(engine, waits) == [(0, 100), (0, 5), (108, 118)]


def test_a_stream_that_waits_twice_goes_on_after_the_later(engine: Engine) -> None:
    waits = program(
        launch(Op(100)),
        Do(Code.RECORD, stream=0),
        Do(Code.RECORD, stream=1),
        Do(Code.STREAM_WAIT, stream=2, target=1),
        Do(Code.STREAM_WAIT, stream=2, target=2),
        launch(Op(10, stream=2), stream=2),
        devices=(0, 0, 0),
    )
    assert device(engine, waits)[1] == (100, 110)


def test_a_stream_that_an_event_holds_is_not_done(engine: Engine) -> None:
    held = (
        launch(Op(100)),
        Do(Code.RECORD, stream=0),
        Do(Code.STREAM_WAIT, stream=1, target=1, latency=8),
        Do(Code.RECORD, stream=1),
    )
    ways = (
        Do(Code.SYNC_STREAM, stream=1),
        Do(Code.SYNC_EVENT, target=3),
        Do(Code.SYNC_DEVICE, stream=1),
        Do(Code.SYNC_DEVICE),
    )
    assert [host(engine, program(*held, way, devices=(0, 1)))[4][1] for way in ways] == [108, 108, 108, 108]


def test_an_event_that_holds_a_stream_holds_every_branch_of_a_graph_launched_on_it(engine: Engine) -> None:
    replayed = engine(
        program(
            Do(Code.LAUNCH, stream=2, ops=[Op(50, stream=2)]),
            Do(Code.RECORD, stream=2),
            Do(Code.STREAM_WAIT, stream=0, target=1, latency=5),
            Do(Code.LAUNCH, stream=0, ops=[Op(10, stream=0), Op(10, stream=1)]),
            devices=(0, 0, 0),
        )
    )
    assert replayed.op_start.tolist() == [0, 55, 55]


def test_a_thread_joins_another_where_an_instruction_of_it_ended(engine: Engine) -> None:
    threads = program(
        Do(Code.CALL, 1, call=100),
        Do(Code.CALL, 1, call=500),
        Do(Code.JOIN, 0, target=0, work=10, call=1, latency=7),
        Do(Code.JOIN, 0, target=0, work=1, call=1),
        threads=2,
    )
    assert host(engine, threads)[2:] == [(10, 100), (101, 102)]


@pytest.mark.parametrize(("capacity", "ends"), [(1, [1, 101, 201, 301]), (2, [1, 2, 101, 201]), (4, [1, 2, 3, 4])])
def test_a_launch_waits_for_room_in_the_queue(engine: Engine, capacity: int, ends: list[int]) -> None:
    launches = program(*[launch(Op(100), call=1) for _ in range(4)], capacity=capacity)
    assert [end for _, end in host(engine, launches)] == ends


def test_a_stream_with_room_does_not_wait_for_a_full_one(engine: Engine) -> None:
    launches = program(launch(Op(100)), launch(Op(10, stream=1), stream=1), launch(Op(1)), capacity=1, devices=(0, 0))
    assert host(engine, launches) == [(0, 0), (0, 0), (0, 100)]


def test_a_graph_takes_one_place_in_the_queue(engine: Engine) -> None:
    launches = program(launch(*[Op(10)] * 5), launch(Op(1)), launch(Op(1)), capacity=2)
    assert [end for _, end in host(engine, launches)] == [0, 0, 50]


def test_a_launch_of_nothing_is_over_when_all_before_it_is(engine: Engine) -> None:
    launches = program(
        launch(Op(100), stream=1), launch(), launch(), Do(Code.SYNC_STREAM, stream=0), capacity=1, devices=(0, 0)
    )
    assert [end for _, end in host(engine, launches)] == [0, 0, 100, 100]


def test_a_time_may_be_146_years_and_no_more(engine: Engine) -> None:
    assert host(engine, program(Do(Code.CALL, call=1 << 61), Do(Code.CALL, work=1 << 61)))[1] == (1 << 62, 1 << 62)
    with pytest.raises(ValueError, match=r"the program's times add up to more than 2\*\*62 ns"):
        engine(program(Do(Code.CALL, call=1 << 61), Do(Code.CALL, work=1 << 61, latency=-1)))
