"""Computes the nesting depth of events. Also computes in which lane of its track each event is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool


def depth_within(parent: I32, is_counted: Bool) -> I32:
    """Returns, for each row, the number of its ancestors for which `is_counted` is True.

    `parent` has the parent of each row, or -1 if the row has no parent.
    """
    return depths(np.append(nearest(parent, is_counted), np.int32(-1))[parent])


def shallowest(depth: I32, room: int) -> Bool:
    """Returns a mask of the rows with the smallest depths, at most `room` rows.

    If not all rows of one depth fit, the mask has no row of this depth.
    """
    upto = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(0, np.int64)
    return np.asarray(depth < np.searchsorted(upto, room, side="right"))


def lane_of_overlap(group: NDArray[np.integer], start: I64, end: I64, lanes: int = 8) -> I32:
    """Returns a lane for each event. Events of the same group do not overlap within a lane, except in the last lane.

    Events must be sorted by start. Usually the ops of a stream do not overlap, but the ops of one graph launch may
    overlap. There are at most `lanes` lanes. If more than `lanes` events overlap, the additional events overlap in the
    last lane.
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
