"""Packed columns of integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from unstall.virtual.packed import Packed

ENDS = np.iinfo(np.int64)
NEAR = st.integers(-300, 300)
ANY = st.one_of(NEAR, st.integers(-(1 << 40), 1 << 40), st.sampled_from([ENDS.min, ENDS.max, 0, 1 << 62, -(1 << 62)]))


@examples(300)
@given(st.one_of(st.lists(NEAR, max_size=40), st.lists(ANY, max_size=40)), st.booleans())
def test_rows_are_as_they_were(values: list[int], rising: bool) -> None:
    rows: np.ndarray = np.array(values, np.int64)
    if rising:
        rows = np.cumsum(rows)
    packed = Packed(rows)
    assert len(packed) == len(rows)
    assert packed.rows().tolist() == rows.tolist()
    assert packed.rows().dtype == np.int64


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.bool_])
def test_small_types_stay_what_they_are(dtype: type) -> None:
    rows: np.ndarray = np.array([1, 0, 1, 1], dtype)
    assert Packed(rows).rows().dtype == dtype
    assert Packed(rows).rows().tolist() == rows.tolist()


def test_fields_are_packed_each_by_itself() -> None:
    rows = np.zeros(1_000, [("number", "<i8"), ("kind", "u1"), ("time", "<i8")])
    rows["number"], rows["kind"], rows["time"] = np.arange(1_000), 3, 10**15 + np.arange(1_000) ** 2
    packed = Packed(rows)
    assert (packed.rows() == rows).all()
    assert sum(column.above.nbytes for column in packed._columns if column.above is not None) == 2 * 999
