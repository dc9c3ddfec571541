"""Learns typical delays of a device from a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct

_FEW = 3
_TRIMMED = 10  # one in this many values is dropped at either end


def learn(keys: Sequence[I64 | I32], known: Bool, values: I64, default: int) -> I64:
    """Returns, for every row, a typical value, learned from known rows that are like it.

    Known rows are like a row if they have the same value in a column of `keys`. The typical value is the mean of the
    middle 80 % of them. So sums of many typical values are right, and outliers do not count.

    Args:
        keys: Columns, the most specific first. A row uses the first column in which a few known rows are like it. If
            there is no such column, it gets the median of all known rows.
        known: Which rows have a value to learn from.
        values: The values.
        default: The typical value if no row is known.
    """
    whole = int(np.median(values[known])) if known.any() else default
    result = np.full(len(values), whole, dtype=np.int64)
    rows = np.flatnonzero(known)
    for key in reversed(keys):
        _, which = distinct(key)
        order = rows[np.lexsort((values[rows], which[rows]))]
        group = which[order]
        count = np.bincount(group, minlength=int(which.max(initial=-1)) + 1)
        last = np.cumsum(count)
        cut = count // _TRIMMED
        low, high = last - count + cut, last - cut
        total = np.append(0, np.cumsum(values[order]))
        mean = np.rint((total[high] - total[low]) / np.maximum(high - low, 1)).astype(np.int64)
        enough = (count >= _FEW)[which]
        result[enough] = mean[which][enough]
    return result
