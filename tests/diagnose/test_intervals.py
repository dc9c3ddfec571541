"""The algebra of intervals, against sets of whole nanoseconds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.timeline.intervals import Intervals

LOW, HIGH = -20, 60
INTERVALS = st.lists(st.tuples(st.integers(LOW, HIGH), st.integers(-3, 15)), max_size=12)
MOMENTS = st.integers(LOW - 10, HIGH + 30)
Pairs = list[tuple[int, int]]


def spans(intervals: Pairs) -> Intervals:
    start = np.array([start for start, _ in intervals], np.int64)
    return Intervals.union(start, start + np.array([length for _, length in intervals], np.int64))


def points(intervals: Pairs) -> set[int]:
    return {moment for start, length in intervals for moment in range(start, start + length)}


def points_of(made: Intervals) -> set[int]:
    """What they cover, once it is sure that they are as they must be: ascending, apart, and none empty."""
    edges = list(zip(made.start.tolist(), made.end.tolist(), strict=True))
    assert all(start < end for start, end in edges)
    assert all(before[1] < after[0] for before, after in pairwise(edges))
    assert made.start.dtype == made.end.dtype == np.int64
    return {moment for start, end in edges for moment in range(start, end)}


@given(INTERVALS)
def test_a_union_covers_what_any_of_its_intervals_does(one: Pairs) -> None:
    assert points_of(spans(one)) == points(one)


@given(INTERVALS, INTERVALS)
def test_or_covers_what_either_does(one: Pairs, other: Pairs) -> None:
    assert points_of(spans(one) | spans(other)) == points(one) | points(other)


@given(INTERVALS, INTERVALS)
def test_and_covers_what_both_do(one: Pairs, other: Pairs) -> None:
    assert points_of(spans(one) & spans(other)) == points(one) & points(other)


@given(INTERVALS, INTERVALS)
def test_minus_covers_what_only_the_first_does(one: Pairs, other: Pairs) -> None:
    assert points_of(spans(one) - spans(other)) == points(one) - points(other)


@given(INTERVALS, MOMENTS, MOMENTS)
def test_clip_covers_what_lies_in_the_window(one: Pairs, low: int, high: int) -> None:
    low, high = sorted((low, high))
    assert points_of(spans(one).clip(low, high)) == points(one) & set(range(low, high))


@given(INTERVALS, MOMENTS, MOMENTS)
def test_gaps_cover_what_is_left_of_the_window(one: Pairs, low: int, high: int) -> None:
    low, high = sorted((low, high))
    assert points_of(spans(one).gaps(low, high)) == set(range(low, high)) - points(one)


@given(INTERVALS)
def test_the_total_is_the_number_of_nanoseconds_covered(one: Pairs) -> None:
    assert spans(one).total == len(points(one))


@given(INTERVALS, st.lists(st.tuples(MOMENTS, MOMENTS), max_size=6))
def test_covered_counts_what_is_covered_in_each_window(one: Pairs, windows: Pairs) -> None:
    low, high = (np.array([window[side] for window in windows], np.int64) for side in (0, 1))
    expected = [len(points(one) & set(range(*window))) for window in windows]
    assert spans(one).covered(low, high).tolist() == expected


@given(INTERVALS, st.integers(1, 12))
def test_longer_than_keeps_whole_intervals_of_at_least_that_length(one: Pairs, least: int) -> None:
    whole = spans(one)
    kept = whole.longer_than(least)
    assert points_of(kept) <= points_of(whole)
    assert (kept.end - kept.start).tolist() == [n for n in (whole.end - whole.start).tolist() if n >= least]


def test_touching_intervals_are_one() -> None:
    made = spans([(0, 5), (5, 5)])
    assert (made.start.tolist(), made.end.tolist()) == ([0], [10])


def test_times_beyond_what_a_float_can_hold_stay_exact() -> None:
    far = 2**60
    assert spans([(far, 3), (far + 4, 3)]).gaps(far, far + 7).start.tolist() == [far + 3]
