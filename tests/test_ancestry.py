"""Walks up a parent column, against walking one step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.timeline import ancestry
from unstall.timeline.columns import I32

Flags = list[bool]


@pytest.fixture(params=["c", "python"], autouse=True, scope="module")
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """The loops in C, and their twin in Python."""
    rows = pytest.importorskip("unstall.timeline._rows") if request.param == "c" else None
    with patch.object(ancestry, "_rows", rows):
        yield


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


def test_a_parent_may_stand_after_its_children() -> None:
    parent = np.array([2, 0, -1], np.int32)
    assert ancestry.nearest(parent, np.array([False, False, True])).tolist() == [2, 2, 2]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 5)), max_size=12))
def test_the_event_around_another_is_still_open_and_clips_it(events: list[tuple[int, int, int]]) -> None:
    rows = sorted(((thread, start, start + length) for thread, start, length in events), key=lambda e: (*e[:2], -e[2]))
    expected: list[int] = []
    ends: list[int] = []
    for row, (thread, start, end) in enumerate(rows):
        around = [
            other
            for other in range(row)
            if rows[other][0] == thread and (ends[other] > start or rows[other][1] == start)
        ]
        expected.append(max(around, default=-1))
        ends.append(max(min([end, *(ends[other] for other in around[-1:])]), start))
    table = np.array(rows, np.int64).reshape(-1, 3)
    of_thread: I32 = table[:, 0].astype(np.int32)
    assert ancestry.enclosing(of_thread, table[:, 1], table[:, 2]).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=12))
def test_time_is_that_of_the_open_event_that_began_last(events: list[tuple[int, int]]) -> None:
    events = sorted(events, key=lambda each: each[0])
    start = np.array([at for at, _ in events], np.int64)
    end = start + np.array([length for _, length in events], np.int64)
    time, row = ancestry.open_at(np.arange(len(events)), start, end)
    assert (np.diff(time) > 0).all()
    for now in range(-1, 31):
        at = int(np.searchsorted(time, now, side="right")) - 1
        open_ = np.flatnonzero((start <= now) & (end > now))
        assert (row[at] if at >= 0 else -1) == max(open_.tolist(), default=-1)


def test_a_chain_of_a_million_is_walked_in_rounds_of_its_logarithm() -> None:
    parent = np.arange(-1, 999_999, dtype=np.int32)
    chosen = np.arange(1_000_000) == 0
    assert (ancestry.nearest(parent, chosen) == 0).all()
    assert ancestry.depths(parent)[-1] == 999_999
