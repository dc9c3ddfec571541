"""Delays of a device, learned from a run: one figure for each kind of thing, from those that had just one cause."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct

_FEW = 3
_TRIMMED = 10  # one in so many at either end


def learn(keys: Sequence[I64 | I32], known: Bool, values: I64, default: int) -> I64:
    """For every row the typical value of the known rows that are like it.

    `keys` go from the most telling to the least: a row takes its figure from the first of them of which there are
    a few known rows, else from all of them. A figure is the mean of the middle 80 %: sums of many then come out
    right, and what was odd has no say.
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
