"""Calls that take device or pinned memory from the driver: the cache's first growth, or churn in the steady state."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64

_FAR_LESS = 2


def growing(run: Run) -> I64:
    """Returns the host rows of the allocator calls with which the cache first grows.

    These are calls in the first step, at places that make far fewer such calls in later steps.
    """
    rows = run.activity.allocator_rows[run.inside[run.activity.allocator_rows]]
    if len(run.steps) < 2:
        return rows[:0]
    early = run.timeline.host.start[rows] < run.steps.start[1]
    _, place = np.unique(run.places.place[rows], return_inverse=True)
    later = np.bincount(place[~early], minlength=len(rows))[place] / (len(run.steps) - 1)
    first = np.bincount(place[early], minlength=len(rows))[place]
    chosen: I64 = rows[early & (first > _FAR_LESS * later)]
    return chosen


def churning(run: Run) -> I64:
    """Returns the host rows of the allocator calls that `growing` does not return."""
    rows = run.activity.allocator_rows[run.inside[run.activity.allocator_rows]]
    later: I64 = np.setdiff1d(rows, growing(run))
    return later
