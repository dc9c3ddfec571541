"""Which groups communicate most among those of a rank."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from unstall.fleets.roles import _most_beside
from unstall.fleets.summary import Group

GROUPS = st.lists(st.tuples(st.sets(st.integers(0, 5), max_size=3), st.integers(0, 4)), max_size=8)


class Counted(tuple[int, ...]):
    """Ranks that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        Counted.times += 1
        return super().__iter__()


@given(GROUPS)
def test_a_group_is_compared_with_the_busiest_that_shares_ranks_with_it(given: list[tuple[set[int], int]]) -> None:
    groups = [Group("", tuple(sorted(ranks)), len(ranks)) for ranks, _ in given]
    calls = [float(count) for _, count in given]
    expected = [max((n for other, n in given if other & ranks and other != ranks), default=0) for ranks, _ in given]
    assert _most_beside(groups, calls) == expected


def test_the_ranks_of_each_group_are_gone_through_twice_however_many_groups_there_are() -> None:
    Counted.times = 0
    groups = [Group("", Counted((number, number + 1)), 2) for number in range(100)]
    assert _most_beside(groups, [*range(100)]) == [*range(1, 100), 98]
    assert Counted.times == 2 * len(groups)
