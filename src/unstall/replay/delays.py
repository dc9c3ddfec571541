"""Learns typical delays of a device from a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct

_FEW = 3
_TRIMMED = 10  # one in this many values is dropped at either end


def learn(keys: Sequence[I64 | I32], known: Bool, values: I64, default: int) -> I64:
    """Returns, for every row, the typical value of the known rows with the same key.

    `keys` are columns from the most specific to the least. A row uses the first key that a few known rows share, else
    all known rows. The typical value is the mean of the middle 80 %: sums of many come out right, and outliers do not
    count.
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
