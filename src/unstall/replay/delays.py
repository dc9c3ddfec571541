"""Delays of a device, learned from a run: one figure for each kind of thing, from those that had just one cause."""

from __future__ import annotations

import numpy as np

from unstall.grouping import distinct, groups
from unstall.timeline import I64, Bool

_FEW = 3


def typical(values: I64, default: int) -> int:
    """The median; the default where there is none."""
    return round(float(np.median(values))) if len(values) else default


def learn(keys: list[I64] | list[Bool], known: Bool, values: I64, default: int) -> I64:
    """For every row the typical value of the known rows that are like it.

    `keys` go from the most telling to the least: a row takes its figure from the first of them of which there are
    a few known rows, else from all of them.
    """
    result = np.full(len(values), typical(values[known], default), dtype=np.int64)
    for key in reversed(keys):
        _, which = distinct(key)
        for _, rows in groups(which):
            mine = rows[known[rows]]
            if len(mine) >= _FEW:
                result[rows] = _middle(values[mine])
    return result


def _middle(values: I64) -> int:
    """The mean of the middle 80 %: sums of many then come out right, and what was odd has no say."""
    ordered = np.sort(values)
    cut = len(ordered) // 10
    return round(float(ordered[cut : len(ordered) - cut].mean()))
