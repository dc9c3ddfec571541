"""How deep events are nested, and which lane of a track each is drawn in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unstall.timeline import I32, I64, Bool


def depth_within(parent: I32, is_counted: Bool) -> I32:
    """For each row, how many of its ancestors are counted.

    Pointer doubling: after n rounds every row knows about its nearest 2ⁿ ancestors.
    """
    depth = _through(is_counted.astype(np.int32), parent, 0)
    ancestor = np.asarray(parent, np.int32)
    while (ancestor >= 0).any():
        depth = depth + _through(depth, ancestor, 0)
        ancestor = _through(ancestor, ancestor, -1)
    return depth


def _through(column: I32, row: I32, none: int) -> I32:
    if not len(row):
        return np.zeros(0, np.int32)
    return np.where(row >= 0, column[row], none).astype(np.int32)


def shallowest(depth: I32, room: int) -> Bool:
    """The rows of whole depths, outermost first, that `room` has place for."""
    upto = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(0, np.int64)
    return np.asarray(depth < np.searchsorted(upto, room, side="right"))


def lane_of_overlap(group: NDArray[np.integer], start: I64, end: I64, lanes: int = 8) -> I32:
    """Spread the events of each group, sorted by start, over lanes in which they do not overlap.

    A stream's ops follow each other, but those of one graph launch may run side by side. What overlaps more
    than `lanes` deep shares the last lane.
    """
    lane = np.zeros(len(start), np.int32)
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        for depth in range(1, lanes):
            ends_before = np.maximum.accumulate(end[rows])[:-1]
            rows = rows[1:][start[rows[1:]] < ends_before]
            if not len(rows):
                break
            lane[rows] = depth
    return lane
