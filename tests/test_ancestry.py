"""Walks up a parent column, against walking one step at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.timeline import ancestry
from unstall.timeline.columns import I32

Flags = list[bool]


@st.composite
def forests(draw: st.DrawFn) -> I32:
    """Parent columns in which each row's parent stands before it."""
    size = draw(st.integers(0, 30))
    return np.array([draw(st.integers(-1, row - 1)) for row in range(size)], np.int32)


def chosen_of(draw: st.DataObject, parent: I32) -> Flags:
    return draw.draw(st.lists(st.booleans(), min_size=len(parent), max_size=len(parent)))


def ancestors(parent: I32, row: int) -> list[int]:
    """The row itself, its parent, and so on."""
    way = [row]
    while parent[way[-1]] >= 0:
        way.append(int(parent[way[-1]]))
    return way


@given(forests(), st.data())
def test_nearest_is_the_first_chosen_one_on_the_way_up(parent: I32, data: st.DataObject) -> None:
    chosen = chosen_of(data, parent)
    expected = [next((i for i in ancestors(parent, row) if chosen[i]), -1) for row in range(len(parent))]
    assert ancestry.nearest(parent, np.array(chosen, np.bool_)).tolist() == expected


@given(forests(), st.data())
def test_outermost_is_the_last_chosen_one_below_the_nearest_barrier(parent: I32, data: st.DataObject) -> None:
    chosen = chosen_of(data, parent)
    barrier = [flag and not taken for flag, taken in zip(chosen_of(data, parent), chosen, strict=True)]
    expected = []
    for row in range(len(parent)):
        way = ancestors(parent, row)
        below = way[: next((i for i, above in enumerate(way) if barrier[above]), len(way))]
        expected.append(next((i for i in reversed(below) if chosen[i]), -1))
    found = ancestry.outermost(parent, np.array(chosen, np.bool_), np.array(barrier, np.bool_))
    assert found.tolist() == expected


@given(forests())
def test_depth_is_the_number_of_ancestors(parent: I32) -> None:
    expected = [len(ancestors(parent, row)) - 1 for row in range(len(parent))]
    assert ancestry.depths(parent).tolist() == expected


@given(forests(), st.data())
def test_sums_below_are_of_a_row_and_all_that_it_is_an_ancestor_of(parent: I32, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-9, 9), min_size=len(parent), max_size=len(parent)))
    expected = [0] * len(parent)
    for row, value in enumerate(values):
        for above in ancestors(parent, row):
            expected[above] += value
    assert ancestry.sums_below(parent, np.array(values, np.int64)).tolist() == expected


def test_a_chain_of_a_million_is_walked_in_rounds_of_its_logarithm() -> None:
    parent = np.arange(-1, 999_999, dtype=np.int32)
    chosen = np.arange(1_000_000) == 0
    assert (ancestry.nearest(parent, chosen) == 0).all()
    assert ancestry.depths(parent)[-1] == 999_999
