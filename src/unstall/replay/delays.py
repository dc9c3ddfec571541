"""Learns typical delays of a device from a recorded run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct, median, order_of

_FEW = 3
_TRIMMED = 10  # one in this many values is dropped at either end


def learn(keys: Sequence[I64 | I32], known: Bool, values: I64, default: int) -> I64:
    """Returns a typical value for every row of a table. It is learned from similar rows whose value
    is known.

    Two rows are similar if they have the same key: the same number in a column of `keys`. The
    typical value is the mean of the middle 80 % of the known values of similar rows. So sums of
    many typical values are accurate, and outliers are ignored.

    Args:
        keys: Columns of keys, the most specific first. A row uses the first column in which at
            least 3 known rows have the row's key. If no column has 3 such rows, the row gets the
            median of all known values.
        known: A mask of the rows whose value is known.
        values: The value of each row. Only the known ones are used.
        default: The typical value of every row if no row is known.
    """
    rows = np.flatnonzero(known)
    if not len(rows):
        return np.full(len(values), default, dtype=np.int64)
    rows = rows[np.argsort(values[rows], kind="stable")]
    result = np.empty(len(values), dtype=np.int64)
    is_open = np.ones(len(values), dtype=np.bool_)
    for key in keys:
        found, which = distinct(key)
        group = which[rows]
        order = rows[order_of(group, len(found))]
        count = np.bincount(group, minlength=len(found))
        last = count.cumsum()
        cut = count // _TRIMMED
        low, high = last - count + cut, last - cut
        total = np.append(0, values[order].cumsum())
        mean = np.rint((total[high] - total[low]) / np.maximum(high - low, 1)).astype(np.int64)
        fits = is_open & (count >= _FEW)[which]
        result[fits] = mean[which[fits]]
        is_open &= ~fits
        if not is_open.any():
            return result
    result[is_open] = int(median(values[rows]))
    return result
