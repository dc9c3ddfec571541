"""Rows by value, against dictionaries."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.timeline import grouping

VALUES = st.lists(st.one_of(st.integers(-3, 9), st.sampled_from([-(2**40), 2**40])), max_size=20)


@pytest.fixture(params=["c", "python"], autouse=True, scope="module")
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """The loops in C, and their twin in Python."""
    rows = pytest.importorskip("unstall.timeline._rows") if request.param == "c" else None
    with patch.object(grouping, "_rows", rows):
        yield


@given(VALUES)
def test_groups_are_the_rows_of_each_value_in_order(values: list[int]) -> None:
    expected = defaultdict(list)
    for row, value in enumerate(values):
        expected[value].append(row)
    found = [(value, rows.tolist()) for value, rows in grouping.groups(np.array(values, np.int64))]
    assert found == sorted(expected.items())


def test_a_field_of_records_is_grouped_like_any_other_column() -> None:
    records = np.array([(1, 3), (0, 1), (1, 3)], np.dtype([("write", "u1"), ("address", "<i8")]))
    assert [(value, rows.tolist()) for value, rows in grouping.groups(records["address"])] == [(1, [1]), (3, [0, 2])]
    assert [each.tolist() for each in grouping.distinct(records["address"])] == [[1, 3], [1, 0, 1]]


@given(VALUES, VALUES)
def test_members_are_the_positions_of_all_that_are_wanted(values: list[int], wanted: list[int]) -> None:
    values = sorted(values)
    expected = [i for want in wanted for i, value in enumerate(values) if value == want]
    found = grouping.members(np.array(values, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == expected


@given(VALUES)
def test_unique_values_are_ascending_and_in_the_type_of_the_column(values: list[int]) -> None:
    assert grouping.unique(np.array(values, np.int64)).tolist() == sorted(set(values))
    narrow = np.array([value % 5 for value in values], np.int32)
    assert grouping.unique(narrow).dtype == np.int32


@given(VALUES, VALUES)
def test_values_that_are_in_others(values: list[int], wanted: list[int]) -> None:
    found = grouping.is_in(np.array(values, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [value in wanted for value in values]


@given(VALUES)
def test_distinct_values_and_where_each_row_has_its(values: list[int]) -> None:
    found, which = grouping.distinct(np.array(values, np.int64))
    assert found.tolist() == sorted(set(values))
    assert found[which].tolist() == values


@given(st.lists(st.integers(-9, 9), max_size=20), st.lists(st.integers(-9, 9), max_size=4))
def test_codes_that_are_among_a_few(codes: list[int], chosen: list[int]) -> None:
    found = grouping.is_one_of(np.array(codes, np.int8), chosen)
    assert found.tolist() == [code in chosen for code in codes]


@given(st.lists(st.integers(-1, 5), max_size=20))
def test_a_meaning_is_asked_once_for_each_distinct_text(texts: list[int]) -> None:
    asked = []

    def meaning(index: int) -> int:
        asked.append(index)
        return 10 * index

    assert grouping.by_text(np.array(texts, np.int32), meaning).tolist() == [10 * text for text in texts]
    assert sorted(asked) == sorted(set(texts))


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_the_median_is_that_of_numpy(count: int) -> None:
    table = np.random.default_rng(count).normal(size=(count, 3))
    assert grouping.median(table).tolist() == np.median(table, axis=0).tolist()
    assert grouping.median(table.T, axis=1).tolist() == np.median(table, axis=0).tolist()


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*2 * [st.integers(0, n - 1)])))))
def test_components_are_all_that_pairs_connect(case: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = case
    expected = list(range(count))
    for _ in range(count):
        for one, other in pairs:
            expected[one] = expected[other] = min(expected[one], expected[other])
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    assert grouping.components(count, columns[:, 0], columns[:, 1]).tolist() == expected


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_long_chain_is_connected_in_few_rounds(shuffled: bool) -> None:
    count = 1 << 12
    chain = np.random.default_rng(1).permutation(count) if shuffled else np.arange(count)
    lines = 0

    def counting(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_code is grouping.components.__code__
        return counting

    before = sys.gettrace()
    sys.settrace(counting)
    try:
        found = grouping.components(count, chain[:-1], chain[1:])
    finally:
        sys.settrace(before)
    assert not found.any()
    assert lines < 12 * (12 + 2 * 12)
