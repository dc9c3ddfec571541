"""Finds out how deeply events are nested, and in which lane of its track each event of a picture is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool


def depth_within(parent: I32, is_counted: Bool) -> I32:
    """Returns, for each row, how many of its ancestors are counted.

    `parent` has, for each row, the row of its parent, or -1 if it has none. `is_counted` says, for
    each row, whether it counts.
    """
    return depths(np.append(nearest(parent, is_counted), np.int32(-1))[parent])


def shallowest(depth: I32, room: int) -> Bool:
    """Returns a mask of at most `room` rows: those with the smallest values in `depth`.

    Rows of equal depth are kept together: if they do not all fit, the mask has none of them.
    """
    upto = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(0, np.int64)
    return np.asarray(depth < np.searchsorted(upto, room, side="right"))


def lane_of_overlap(group: NDArray[np.integer], start: I64, end: I64, lanes: int = 8) -> I32:
    """Returns a lane for each event, from 0 to `lanes` - 1. Events of one group that overlap in
    time get different lanes.

    Ops of one stream seldom overlap, but ops of one graph launch may. If more than `lanes` events
    overlap, those that find no free lane share the last one.

    Args:
        group: A number for each event. Only events with the same number are compared.
        start: The start of each event, ascending.
        end: The end of each event.
        lanes: The largest number of lanes per group.
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
