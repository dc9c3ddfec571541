"""Ops that take a share of an engine, and run beside others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.invented import Do, Op, program

from unstall.replay.engine import RESUMABLE
from unstall.replay.interpreter import Needs, Use
from unstall.replay.program import KEPT, LOST, RECENT, WHOLE, Code


@pytest.fixture(params=sorted(RESUMABLE), scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def times(engine: str, ops: list[Op]) -> list[tuple[int, int]]:
    """Returns (start, end) of ops that are launched one after the other, each on a stream of its own."""
    launches = [Do(Code.LAUNCH, stream=at, ops=[replace(op, stream=at, engine=0)]) for at, op in enumerate(ops)]
    whole = program(*launches, devices=[0] * len(ops), engines=1)
    replayed = RESUMABLE[engine](whole.capacity, True).feed(whole)
    return list(zip(replayed.op_start.tolist(), replayed.op_end.tolist(), strict=True))


@pytest.mark.parametrize(("one", "other"), [(0, 0), (100, 100), (500, 500), (1000, 200), (1000, 700), (1000, 1000)])
def test_two_loops_take_longer_together_by_the_mean_of_their_shares(engine: str, one: int, other: int) -> None:
    ops = [Op(1_000, stream=at % 2, engine=0, share=max((one, other)[at % 2], 1)) for at in range(400)]
    whole = program(*(Do(Code.LAUNCH, stream=op.stream, ops=[op]) for op in ops), devices=[0, 0], engines=1)
    ends = RESUMABLE[engine](whole.capacity, True).feed(whole).op_end

    assert ends.max() == pytest.approx(200_000 * (1 + (one + other) / 2 / WHOLE), rel=0.02)


def test_an_op_is_slower_while_an_earlier_one_runs(engine: str) -> None:
    # For 100 ns the later one has a third of its rate. 67 ns of its work are left.
    assert times(engine, [Op(100, share=500), Op(100, share=500)]) == [(0, 100), (0, 167)]


def test_an_op_waits_for_an_earlier_one_if_both_need_the_whole_engine(engine: str) -> None:
    assert times(engine, [Op(100, share=1000), Op(10, share=1000)]) == [(0, 100), (100, 110)]


def test_an_op_that_takes_the_whole_engine_without_interruption_waits_until_it_is_idle(engine: str) -> None:
    assert times(engine, [Op(100, share=10), Op(50), Op(10, share=10)]) == [(0, 100), (100, 150), (0, 11)]


def test_an_op_whose_blocks_find_no_room_has_a_tenth_of_its_rate(engine: str) -> None:
    small, whole = Op(100, share=1, blocks=1_000, size=62), Op(50, share=1, blocks=970, size=984)
    full = replace(whole, blocks=1_000, size=1_000)

    assert times(engine, [small, whole]) == [(0, 100), (0, 140)]
    assert times(engine, [full, small]) == [(0, 50), (0, 145)]


def test_what_an_op_that_fills_the_device_leaves_to_its_like_was_measured(engine: str) -> None:
    full = Op(100, share=500, blocks=32_000, size=62)

    assert times(engine, [full, full]) == times(engine, [Op(100, share=500), Op(100, share=500)])


def test_an_op_of_unknown_blocks_is_met_on_all_multiprocessors(engine: str) -> None:
    unknown, few, many = Op(1_000, share=1000), Op(10, share=10, blocks=10), Op(100, share=1000, blocks=1_000)

    assert times(engine, [unknown, many])[1] == (1_000, 1_100)
    assert times(engine, [unknown, few, many])[2] == (1_000, 1_100)


def test_blocks_find_room_on_multiprocessors_without_blocks(engine: str) -> None:
    whole, few = Op(50, share=1, blocks=970, size=984), Op(100, share=1, blocks=1_000, size=62)

    assert times(engine, [whole, few]) == [(0, 50), (0, 101)]


def test_an_op_meets_others_only_on_the_multiprocessors_that_have_their_blocks(engine: str) -> None:
    few, many = Op(1_000, share=1000, blocks=100, size=100), Op(100, share=1000, blocks=1_000, size=100)

    # A tenth of both shares: nine tenths over eleven tenths of the rate.
    assert times(engine, [few, many])[1] == (0, 123)
    assert times(engine, [replace(many, duration=1_000), replace(few, duration=100)])[1] == (1_000, 1_100)


def durations(engine: str, *ops: Op) -> list[int]:
    """How long ops run, one after the other on a stream."""
    launches = [Do(Code.LAUNCH, stream=0, ops=[replace(op, stream=0, engine=0, share=1)]) for op in ops]
    whole = program(*launches, devices=[0], engines=1)
    replayed = RESUMABLE[engine](whole.capacity, True).feed(whole)
    return list(map(int, replayed.op_end - replayed.op_start))


def test_an_op_that_repeats_one_of_the_last_on_its_stream_takes_as_long_as_then(engine: str) -> None:
    one, other = Op(100, data=7, again=80), Op(50, data=7, again=60)
    assert durations(engine, one, one, one) == [100, 80, 80]
    assert durations(engine, one, other, one, other) == [100, 50, 80, 60]
    assert durations(engine, one, replace(one, data=8), one) == [100, 100, 80]
    assert durations(engine, one, other, other, one) == [100, 50, 60, 80]
    assert durations(engine, *[replace(one, data=0)] * 2) == [100, 100]  # it is not known what they use
    most = [replace(other, data=100 + at) for at in range(RECENT)]
    assert durations(engine, one, *most[1:], one)[-1] == 80
    assert durations(engine, one, *most, one)[-1] == 100


def test_an_op_repeats_none_whose_data_others_removed_from_the_cache(engine: str) -> None:
    one, other = Op(100, data=7, again=80, cached=KEPT // 2), Op(50, data=8, again=50)

    assert durations(engine, one, replace(other, cached=KEPT // 2), one)[-1] == 80
    assert durations(engine, one, replace(other, cached=(KEPT + LOST) // 2 - KEPT // 2), one)[-1] == 90
    assert durations(engine, one, replace(other, cached=LOST), one)[-1] == 100
    large = replace(one, cached=LOST)  # no loop of it finds its data
    assert durations(engine, large, large, large) == [100, 80, 80]


def test_ops_that_use_the_same_data_remove_none_of_it_from_the_cache(engine: str) -> None:
    ops = [Op(100 + at, data=7, again=80 + at, cached=KEPT // 4) for at in range(10)]
    assert durations(engine, *ops, *ops)[10:] == [80 + at for at in range(10)]
    of_a_call = [Op(100, data=7, again=80, cached=LOST), Op(50, data=7, again=40, cached=LOST)]
    assert durations(engine, *of_a_call, *of_a_call)[2:] == [80, 40]  # a loop of them has lost it, too


def test_ops_of_a_call_use_the_cache_for_their_data_once(engine: str) -> None:
    one = Op(100, data=7, again=80, cached=KEPT // 2)
    call = [Op(20 + at, data=8, cached=KEPT // 2) for at in range(3)]
    assert durations(engine, one, *call, one)[-1] == 80


def test_an_event_can_take_a_stream_some_time(engine: str) -> None:
    record, op = Do(Code.RECORD, stream=0, latency=30), Do(Code.LAUNCH, stream=0, ops=[Op(100, gap=7)])
    whole = program(op, record, record, op, Do(Code.SYNC_EVENT, target=2), devices=[0], engines=1)
    replayed = RESUMABLE[engine](whole.capacity, True).feed(whole)

    assert replayed.op_start.tolist() == [7, 7 + 100 + 30 + 30 + 7]
    assert replayed.end[-1] == 7 + 100 + 30


def test_ops_of_two_streams_whose_data_does_not_fit_together_miss_the_cache(engine: str) -> None:
    def ends(cached: int, data: tuple[int, int] = (0, 0)) -> list[int]:
        ops = [
            Op(100, stream=at % 2, engine=0, share=1, cached=cached, data=data[at % 2], uncached=50) for at in range(4)
        ]
        whole = program(*(Do(Code.LAUNCH, stream=op.stream, ops=[op]) for op in ops), devices=[0, 0], engines=1)
        return list(map(int, RESUMABLE[engine](whole.capacity, True).feed(whole).op_end))

    # Beside each other, two ops of a thousandth are a nanosecond slower.
    assert ends(cached=265) == [100, 101, 201, 202]
    assert ends(cached=350) == [100, 101, 225, 227]  # the first op of a stream is taken to find its data
    assert ends(cached=435) == [100, 101, 250, 252]
    assert ends(cached=700) == [100, 101, 251, 252]
    assert ends(cached=435, data=(1, 2)) == [100, 101, 250, 252]
    assert ends(cached=435, data=(1, 1)) == [100, 101, 201, 202]
    assert ends(cached=870) == [100, 101, 201, 202]  # alone, they miss the cache too


def test_branches_of_a_launch_run_by_arrival(engine: str) -> None:
    branches = [Op(100, stream=at // 2, engine=0, share=1000, gap=5) for at in range(4)]
    whole = program(Do(Code.LAUNCH, stream=0, ops=branches), devices=[0, 0], engines=1)

    assert RESUMABLE[engine](whole.capacity, True).feed(whole).op_start.tolist() == [5, 205, 105, 305]


some_ops = st.lists(
    st.builds(
        Op,
        st.integers(1, 300),
        share=st.integers(1, WHOLE),
        latency=st.integers(0, 400),
        blocks=st.integers(0, 5_000),
        size=st.integers(1, WHOLE),
    ),
    min_size=1,
    max_size=8,
)


needs = st.builds(Needs, st.integers(1, WHOLE), st.integers(0, 5_000), st.integers(1, WHOLE))


@given(needs=needs, running=st.lists(needs, max_size=4), more=needs)
def test_a_pace_falls_with_each_op_that_runs(needs: Needs, running: list[Needs], more: Needs) -> None:
    use = Use()
    for other in running:
        use = use.beside(other.use)

    assert needs.pace(Use()) == WHOLE
    assert 0 <= needs.pace(use.beside(more.use)) <= needs.pace(use)


@given(ops=some_ops)
def test_each_op_gets_its_pace_beside_the_earlier_ones(engine: str, ops: list[Op]) -> None:
    used: dict[int, Use] = {}  # by ns
    for op, (start, end) in zip(ops, times(engine, ops), strict=True):
        needs = Needs(op.share, op.blocks, op.size)
        work, now, begun = op.duration * WHOLE, op.latency, None
        while work > 0:
            use = used.get(now, Use())
            pace = needs.pace(use)
            if pace:
                begun = now if begun is None else begun
                work -= pace
                used[now] = use.beside(needs.use)
            now += 1
        assert (start, end) == (begun, now)


def test_room_in_a_forgotten_past_is_not_found_later(engine: str) -> None:
    """An idle beginning, and then more ops than the engine tells apart: a late one finds no room among them."""
    queue = [Op(10, share=1000, latency=1_000_000) for _ in range(300)]
    late = times(engine, [*queue, Op(10, share=1000, latency=1_000_000)])[-1]
    assert late == (1_003_000, 1_003_010)


def test_ops_of_a_hundred_days_are_refused_or_served(engine: str) -> None:
    (_, first), (_, second) = times(engine, [Op(10**16, share=999), Op(10**16, share=1000)])
    assert first == 10**16 < second < 1 << 63
