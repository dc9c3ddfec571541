"""Rows by value: one sort instead of a mask for each value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.timeline import I32, I64


def groups(values: I64 | I32) -> Iterator[tuple[int, I64]]:
    """(value, rows that have it, ascending) for each distinct value, ascending."""
    order = np.argsort(values, kind="stable")
    cuts = np.flatnonzero(np.diff(values[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield int(values[rows[0]]), rows


def members(sorted_values: I64 | I32, wanted: I64 | I32) -> I64:
    """Positions in `sorted_values` of all that equal one of `wanted`, in the order of `wanted`."""
    first = np.searchsorted(sorted_values, wanted, side="left")
    count = np.searchsorted(sorted_values, wanted, side="right") - first
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    positions: I64 = np.repeat(first, count) + offset
    return positions
