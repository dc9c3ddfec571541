"""Ops that take a share of an engine, and run beside others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.invented import Do, Op, program

from unstall.replay.engine import RESUMABLE
from unstall.replay.interpreter import rate_beside
from unstall.replay.program import WHOLE, Code


@pytest.fixture(params=sorted(RESUMABLE), scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def times(engine: str, ops: list[Op]) -> list[tuple[int, int]]:
    """Returns (start, end) of ops that are launched one after the other, each on a stream of its own."""
    launches = [
        Do(Code.LAUNCH, stream=at, ops=[Op(op.duration, stream=at, engine=0, latency=op.latency, share=op.share)])
        for at, op in enumerate(ops)
    ]
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


some_ops = st.lists(
    st.builds(Op, st.integers(1, 300), share=st.integers(1, WHOLE), latency=st.integers(0, 400)), min_size=1, max_size=8
)


@given(share=st.integers(1, WHOLE), used=st.integers(0, WHOLE))
def test_a_rate_is_at_most_the_share_and_what_is_unused_and_falls_with_use(share: int, used: int) -> None:
    assert 0 <= rate_beside(share, used) <= min(share, WHOLE - used)
    assert rate_beside(share, 0) == share
    assert (rate_beside(share, used) > 0) == (used < WHOLE)
    assert used == 0 or rate_beside(share, used) <= rate_beside(share, used - 1)


@given(ops=some_ops)
def test_each_op_gets_its_rate_beside_the_earlier_ones(engine: str, ops: list[Op]) -> None:
    used: dict[int, int] = {}  # by ns
    for op, (start, end) in zip(ops, times(engine, ops), strict=True):
        work, now, begun = op.duration * op.share, op.latency, None
        while work > 0:
            rate = rate_beside(op.share, used.get(now, 0))
            if rate:
                begun = now if begun is None else begun
                work -= rate
                used[now] = used.get(now, 0) + rate
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
