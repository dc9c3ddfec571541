"""Arrays that grow by parts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.growing_array import GrowingArray


@given(
    st.lists(st.integers(0, 5) | st.sampled_from([1 << 16, 255]), max_size=12), st.integers(0, 12), st.integers(1, 99)
)
def test_the_whole_is_all_rows_in_order_whenever_it_is_asked_for(lengths: list[int], asked_at: int, times: int) -> None:
    growing = GrowingArray(np.int64)
    expected: list[np.ndarray] = []
    for number, length in enumerate(lengths * times if sum(lengths) < 50 else lengths):
        if number == asked_at:
            growing.whole()
        rows = np.arange(length) + 1_000 * number
        growing.append(rows)
        expected.append(rows)
    assert growing.length == sum(map(len, expected))
    assert growing.whole().tolist() == np.concatenate([np.zeros(0), *expected]).tolist()


@given(st.lists(st.integers(0, 300), max_size=400), st.integers(0, 60_000), st.booleans())
def test_rows_since_a_row_are_the_end_of_the_whole(lengths: list[int], row: int, joined: bool) -> None:
    growing = GrowingArray(np.int64)
    for number, length in enumerate(lengths):
        growing.append(np.arange(length) + 1_000 * number)
    whole = growing.whole().tolist() if joined else None
    since = growing.since(min(row, growing.length)).tolist()
    assert since == (whole or growing.whole().tolist())[min(row, growing.length) :]


def test_what_is_appended_may_change_afterwards() -> None:
    growing = GrowingArray(np.int32)
    rows = np.array([1, 2])
    growing.append(rows)
    rows[:] = 9
    assert growing.whole().tolist() == [1, 2]
    assert growing.whole().dtype == np.int32


@pytest.mark.parametrize("rows", [1, 10])
def test_rows_that_come_one_by_one_take_little_more_than_their_bytes(rows: int) -> None:
    growing = GrowingArray(np.int64)
    row = np.zeros(rows, np.int64)
    tracemalloc.start()
    try:
        for _ in range(20_000 // rows):
            growing.append(row)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / growing.length < 14
