"""Ops that take a share of an engine, and run beside others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.invented import Do, Op, program

from unstall.replay.engine import RESUMABLE
from unstall.replay.interpreter import Needs, Use
from unstall.replay.program import WHOLE, Code


@pytest.fixture(params=sorted(RESUMABLE), scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def times(engine: str, ops: list[Op]) -> list[tuple[int, int]]:
    """Returns (start, end) of ops that are launched one after the other, each on a stream of its own."""
    launches = [Do(Code.LAUNCH, stream=at, ops=[replace(op, stream=at, engine=0)]) for at, op in enumerate(ops)]
    whole = program(*launches, devices=[0] * len(ops), engines=1)
    replayed = RESUMABLE[engine](whole.capacity, True).feed(whole)
    return list(zip(replayed.op_start.tolist(), replayed.op_end.tolist(), strict=True))


def test_halves_of_an_engine_meet_for_a_quarter_of_their_time(engine: str) -> None:
    # For 100 ns the later one gets 375 of its 500 thousandths. 25 ns of its work are left.
    assert times(engine, [Op(100, share=500), Op(100, share=500)]) == [(0, 100), (0, 125)]


def test_tenths_of_an_engine_run_beside_each_other(engine: str) -> None:
    assert times(engine, [Op(1_000, share=100), Op(1_000, share=100)]) == [(0, 1_000), (0, 1_010)]


def test_an_op_is_slower_while_less_than_its_share_is_unused(engine: str) -> None:
    # It gets 200 of its 800 thousandths for 800 ns, which is the work of 200 ns, and then all that it can use.
    assert times(engine, [Op(800, share=800), Op(800, share=800)]) == [(0, 800), (0, 1_400)]


def test_an_op_waits_while_an_earlier_one_uses_the_whole_engine(engine: str) -> None:
    assert times(engine, [Op(100, share=1000), Op(10, share=1)]) == [(0, 100), (100, 110)]


def test_a_later_op_that_fills_the_engine_runs_in_what_a_small_one_leaves(engine: str) -> None:
    assert times(engine, [Op(1_000, share=100), Op(900, share=1000)]) == [(0, 1_000), (0, 1_000)]


def test_an_op_that_takes_the_whole_engine_without_interruption_waits_until_it_is_idle(engine: str) -> None:
    assert times(engine, [Op(100, share=10), Op(50), Op(10, share=10)]) == [(0, 100), (100, 150), (0, 10)]


def test_an_op_whose_blocks_fill_multiprocessors_waits_for_small_blocks_on_all_of_them(engine: str) -> None:
    small, whole = Op(100, share=10, blocks=1_000, size=62), Op(50, share=10, blocks=970, size=984)

    assert times(engine, [small, whole]) == [(0, 100), (100, 150)]
    # In 50 ns, a third of the small blocks find room on the other 3 % of the multiprocessors.
    assert times(engine, [whole, small]) == [(0, 50), (0, 134)]


def test_an_op_waits_until_one_that_was_launched_earlier_has_given_out_all_its_blocks(engine: str) -> None:
    # Both have two waves. The first leaves its multiprocessors 10 ns before its end.
    ops = [Op(100, share=300, blocks=32_000, size=62, tail=10), Op(100, share=300, blocks=32_000, size=62)]

    assert times(engine, ops) == [(0, 100), (90, 190)]


def test_an_op_waits_for_its_slowest_blocks_if_it_must_meet_others_on_a_multiprocessor(engine: str) -> None:
    # The first uses half of the rate of 40 % of the multiprocessors. There, half of the time, they are the first's.
    first = Op(1_000, share=200, blocks=400, size=100)

    assert times(engine, [first, Op(75, share=500, blocks=1_000, size=100)]) == [(0, 1_000), (0, 100)]
    # 60 % of the multiprocessors are free.
    assert times(engine, [first, Op(90, share=500, blocks=600, size=100)]) == [(0, 1_000), (0, 100)]


def test_an_op_on_few_multiprocessors_gets_only_their_part_of_the_rate(engine: str) -> None:
    whole = Op(1_000, share=1, blocks=900, size=1_000)  # on the others, ten blocks fit each

    assert times(engine, [whole, Op(100, share=100, blocks=1_000, size=100)])[1] == (0, 100)
    assert times(engine, [whole, Op(100, share=400, blocks=1_000, size=100)])[1] == (0, 400)


def test_blocks_that_find_room_in_twice_as_many_waves_take_twice_as_long(engine: str) -> None:
    # The first fills half of each multiprocessor, so one instead of two blocks of the second fit.
    assert times(engine, [Op(1_000, share=1, blocks=2_000, size=250), Op(100, share=1, blocks=2_000, size=500)]) == [
        (0, 1_000),
        (0, 200),
    ]


def test_ops_of_two_streams_whose_data_does_not_fit_together_miss_the_cache(engine: str) -> None:
    def ends(cached: int, data: tuple[int, int] = (0, 0)) -> list[int]:
        ops = [
            Op(100, stream=at % 2, engine=0, share=1, cached=cached, data=data[at % 2], uncached=50) for at in range(4)
        ]
        whole = program(*(Do(Code.LAUNCH, stream=op.stream, ops=[op]) for op in ops), devices=[0, 0], engines=1)
        return list(map(int, RESUMABLE[engine](whole.capacity, True).feed(whole).op_end))

    assert ends(cached=265) == [100, 100, 200, 200]
    assert ends(cached=350) == [100, 100, 225, 225]  # the first op of a stream is taken to find its data
    assert ends(cached=435) == [100, 100, 250, 250]
    assert ends(cached=700) == [100, 100, 250, 250]
    assert ends(cached=435, data=(1, 2)) == [100, 100, 250, 250]
    assert ends(cached=435, data=(1, 1)) == [100, 100, 200, 200]
    assert ends(cached=870) == [100, 100, 200, 200]  # alone, they miss the cache too


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


@given(needs=needs, rate=st.integers(0, WHOLE), filled=st.integers(0, WHOLE), touched=st.integers(1, WHOLE))
def test_a_pace_leaves_others_their_rate_and_falls_with_use(needs: Needs, rate: int, filled: int, touched: int) -> None:
    use = Use(rate, min(filled, touched), touched)
    assert needs.pace(Use()) == WHOLE
    assert 0 <= needs.pace(use) * needs.share <= (WHOLE - rate) * WHOLE
    assert rate == 0 or needs.pace(use) <= needs.pace(use._replace(rate=rate - 1))
    assert use.filled == 0 or needs.pace(use) <= needs.pace(use._replace(filled=use.filled - 1))


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
                more = needs.use._replace(rate=-(-needs.share * pace // WHOLE))
                used[now] = Use(*(min(one + other, WHOLE) for one, other in zip(use, more, strict=True)))
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
