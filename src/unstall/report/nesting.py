"""Nesting depth of events, and the lane of a track in which each is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool


def depth_within(parent: I32, is_counted: Bool) -> I32:
    """Returns, for each row, how many of its ancestors are in the mask `is_counted`.

    `parent` has each row's parent, or -1.
    """
    return depths(np.append(nearest(parent, is_counted), np.int32(-1))[parent])


def shallowest(depth: I32, room: int) -> Bool:
    """Returns a mask of the rows to keep, at most `room` of them.

    Either all rows of a depth are kept or none. Rows of small depth are kept first.
    """
    upto = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(0, np.int64)
    return np.asarray(depth < np.searchsorted(upto, room, side="right"))


def lane_of_overlap(group: NDArray[np.integer], start: I64, end: I64, lanes: int = 8) -> I32:
    """Returns a lane for each event, so that events of the same group do not overlap within a lane.

    Events must be sorted by start. The ops of a stream follow each other, but the ops of one graph launch may overlap.
    If more than `lanes` events overlap, the remaining ones share the last lane.
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
