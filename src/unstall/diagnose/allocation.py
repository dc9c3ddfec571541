"""Calls that take device or pinned memory from the driver, told apart: first growth, or churn in steady state."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.timeline import I64


def growing(run: Run) -> I64:
    """Host rows of allocator calls in the first step alone: the cache is still growing."""
    rows = run.activity.allocator_rows[run.inside[run.activity.allocator_rows]]
    if len(run.steps) < 2:
        return rows[:0]
    first_end = int(run.steps.start[1])
    return rows[run.timeline.host.start[rows] < first_end]


def churning(run: Run) -> I64:
    """Host rows of allocator calls in later steps; with one step alone, all of them."""
    rows = run.activity.allocator_rows[run.inside[run.activity.allocator_rows]]
    later: I64 = np.setdiff1d(rows, growing(run))
    return later
