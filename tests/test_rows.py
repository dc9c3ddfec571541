"""What the loops in C refuse: columns of another type or length than they take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

rows = pytest.importorskip("unstall.timeline._rows")

I32, I64 = np.zeros(3, np.int32), np.zeros(3, np.int64)
FIXED = I32.copy()
FIXED.flags.writeable = False


@pytest.mark.parametrize(
    "call",
    [
        lambda: rows.settle(I32, np.zeros(2, np.int32)),
        lambda: rows.settle(I64, I64),
        lambda: rows.settle(I32[:2], np.zeros(3, np.int32)[::2]),
        lambda: rows.settle(I32.reshape(1, 3), I32),
        lambda: rows.settle(I32, FIXED),
        lambda: rows.settle(I32),
        lambda: rows.settle([1], I32),
        lambda: rows.enclosing(I32, I64, I64[:2], I32),
        lambda: rows.enclosing(I64, I64, I64, I32),
        lambda: rows.open_at(I64, I64, I64, I64, I64),
        lambda: rows.open_at(I64, I64, I64, np.zeros(6, np.int64), np.zeros(5, np.int64)),
        lambda: rows.open_at(),
        lambda: rows.distinct(np.zeros(3, np.int8), I64),
        lambda: rows.distinct(np.zeros(3), I64),
        lambda: rows.distinct(I64, np.zeros(2, np.int64)),
        lambda: rows.grouped(I32, I32),
    ],
)
def test_other_columns_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        call()


def test_values_far_apart_are_left_to_numpy() -> None:
    far = np.array([-(2**63), 0, 2**63 - 1], np.int64)
    assert rows.distinct(far, I64.copy()) is None
    assert rows.grouped(far, I64.copy()) is None
    assert rows.distinct(far[:0], I64[:0].copy()) is None


def test_a_pointer_to_a_later_row_is_left_to_numpy() -> None:
    assert not rows.settle(np.array([1, 1, 0], np.int32), I32.copy())
    assert rows.settle(np.array([-7, 0, 1], np.int32), found := I32.copy())
    assert found.tolist() == [-1, -1, -1]
