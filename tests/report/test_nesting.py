"""Depths and lanes of a picture, against obvious slow ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.report.nesting import depth_within, lane_of_overlap, shallowest


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """(parents, each before its children; which rows are counted)."""
    size = draw(st.integers(0, 40))
    parents = [draw(st.integers(-1, row - 1)) for row in range(size)]
    return parents, draw(st.lists(st.booleans(), min_size=size, max_size=size))


@given(forests())
def test_depth_is_the_number_of_counted_ancestors(forest: tuple[list[int], list[bool]]) -> None:
    parents, counted = forest

    def slow(row: int) -> int:
        parent = parents[row]
        return 0 if parent < 0 else slow(parent) + counted[parent]

    depth = depth_within(np.array(parents, np.int32), np.array(counted, np.bool_))

    assert depth.tolist() == [slow(row) for row in range(len(parents))]


def test_a_chain_of_a_thousand_frames_is_a_thousand_deep() -> None:
    parent = np.arange(-1, 999, dtype=np.int32)

    assert depth_within(parent, np.ones(1000, np.bool_)).tolist() == list(range(1000))


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(0, 70))
def test_the_shallowest_are_whole_depths_and_as_many_as_fit(depths: list[int], room: int) -> None:
    kept = shallowest(np.array(depths, np.int32), room)

    inside = [depth for depth, is_kept in zip(depths, kept, strict=True) if is_kept]
    outside = [depth for depth, is_kept in zip(depths, kept, strict=True) if not is_kept]
    assert len(inside) <= room
    if outside:
        assert not inside or max(inside) < min(outside)
        assert len(inside) + outside.count(min(outside)) > room


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 100), st.integers(0, 30)), max_size=40))
def test_no_two_ops_of_one_lane_overlap(ops: list[tuple[int, int, int]]) -> None:
    ops = sorted(ops, key=lambda op: op[1])
    group = np.array([op[0] for op in ops], np.int32)
    start = np.array([op[1] for op in ops], np.int64)
    end = start + np.array([op[2] for op in ops], np.int64)

    lane = lane_of_overlap(group, start, end, lanes=50)

    for number in np.unique(group):
        for depth in np.unique(lane[group == number]):
            rows = (group == number) & (lane == depth)
            assert (start[rows][1:] >= np.maximum.accumulate(end[rows])[:-1]).all()


def test_ops_that_follow_each_other_share_the_first_lane() -> None:
    start = np.array([0, 10, 20], np.int64)

    assert lane_of_overlap(np.zeros(3, np.int32), start, start + 10).tolist() == [0, 0, 0]


def test_what_overlaps_too_deeply_shares_the_last_lane() -> None:
    start = np.arange(5, dtype=np.int64)

    assert lane_of_overlap(np.zeros(5, np.int32), start, start + 100, lanes=3).tolist() == [0, 1, 2, 2, 2]
