"""Nesting depth of events, and the lane of a track in which each is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool


def depth_within(parent: I32, is_counted: Bool) -> I32:
    """Returns for each row how many of its ancestors are counted, int32: its depth among the counted rows."""
    return depths(np.append(nearest(parent, is_counted), np.int32(-1))[parent])


def shallowest(depth: I32, room: int) -> Bool:
    """Returns which rows to keep, bool. Keeps whole depths, outermost first, with at most `room` rows in all."""
    upto = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(0, np.int64)
    return np.asarray(depth < np.searchsorted(upto, room, side="right"))


def lane_of_overlap(group: NDArray[np.integer], start: I64, end: I64, lanes: int = 8) -> I32:
    """Returns the lane of each event, so that events of a group do not overlap within a lane. Events must be sorted by
    start.

    A stream's ops follow each other, but those of one graph launch may run side by side. If more than `lanes` events
    overlap, the rest share the last lane.
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
