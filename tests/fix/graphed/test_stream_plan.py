"""Plans keep to what depends on what, and promise no more than the longest way allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unstall.fix.graphs.capture.stream_plan import HOP_SECONDS, Traced, plan

_US = 1e-6


@st.composite
def _traces(draw: st.DrawFn) -> list[Traced]:
    ops: list[Traced] = []
    for place in range(draw(st.integers(1, 25))):
        after = draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set()
        barrier = draw(st.integers(0, 9)) == 0
        before = tuple(range(place)) if barrier else tuple(sorted(after))
        ops.append(Traced(before, draw(st.floats(0.5, 30)) * _US, barrier))
    return ops


@given(_traces(), st.integers(1, 4))
def test_no_plan_is_shorter_than_its_longest_way_nor_longer_than_one_lane_with_all_hops(
    trace: list[Traced], count: int
) -> None:
    found = plan(trace, count)
    ends: list[float] = []
    for op in trace:
        ends.append(max((ends[at] for at in op.after), default=0.0) + op.seconds)
    serial = sum(op.seconds for op in trace)
    assert found.seconds >= max(ends) - 1e-12
    assert found.serial_seconds == serial
    assert found.seconds <= serial + len(trace) * HOP_SECONDS + 1e-12
    assert all(0 <= lane < count for lane in found.lanes)


def test_a_chain_stays_on_one_lane() -> None:
    trace = [Traced((place - 1,) if place else (), 5 * _US) for place in range(20)]
    assert set(plan(trace, 4).lanes) == {0}


def test_independent_branches_go_to_lanes_of_their_own() -> None:
    branches = [Traced((0,), 10 * _US) for _ in range(4)]
    found = plan([Traced((), 1 * _US), *branches, Traced((1, 2, 3, 4), 1 * _US)], 4)
    assert len(set(found.lanes[1:5])) == 4
    assert found.seconds < 0.4 * found.serial_seconds


def test_the_longest_way_keeps_the_lane_of_what_it_follows() -> None:
    # 1 is short and comes first; 2 begins the long way, and would pay the hop at its start.
    trace = [Traced((), 5 * _US), Traced((0,), 1 * _US), Traced((0,), 20 * _US), Traced((2,), 20 * _US)]
    found = plan(trace, 2)
    assert found.lanes[2] == found.lanes[3] == found.lanes[0]
    assert found.lanes[1] != found.lanes[0]
