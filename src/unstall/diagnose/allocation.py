"""Finds the driver calls that allocate or free device memory or pinned memory.

There are two kinds of such calls. At first, the memory of torch's caching allocator grows. Later,
calls of this kind should be rare.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64, HostKind

_FAR_LESS = 2


def growing(run: Run) -> I64:
    """Returns the driver calls with which the caching allocator's memory first grows, as indices of
    rows of `timeline.host`.

    These are calls in the first step, at source lines that make far fewer such calls in later
    steps.
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
    """Returns the driver calls in the steps that allocate or free memory, as indices of rows of
    `timeline.host`. Leaves out the calls with which the caching allocator's memory first grows.
    """
    rows = run.activity.allocator_rows[run.inside[run.activity.allocator_rows]]
    later: I64 = np.setdiff1d(rows, growing(run))
    return later


def first_of_each(run: Run, rows: I64) -> I64:
    """Returns the first of `rows` in each operator, and all of `rows` that are outside of
    operators.

    `rows` and the result are indices of rows of `timeline.host`.
    """
    operation = run.places.operation[rows]
    _, first = np.unique(np.where(operation >= 0, operation, rows), return_index=True)
    return rows[first]


def in_a_row(run: Run, rows: I64) -> I64:
    """Returns some of `rows`: the first one in each operator, and the first one of each series
    outside of operators. `rows` and the result are indices of rows of `timeline.host`.

    A series consists of consecutive driver calls of one thread with the same stack. For example,
    one `empty_cache()` makes a series of calls, and waits in the first call.
    """
    host = run.timeline.host
    alone = rows[run.places.operation[rows] < 0]
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    at = np.searchsorted(calls, alone)
    before = calls[np.maximum(at - 1, 0)]
    goes_on = (
        (at > 0)
        & np.isin(before, alone)
        & (host.thread[before] == host.thread[alone])
        & (host.stack[before] == host.stack[alone])
    )
    return np.concatenate([first_of_each(run, np.setdiff1d(rows, alone)), alone[~goes_on]])
