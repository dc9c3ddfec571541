"""Launches that block because the launch queue is full: back-pressure of a busy device, not a problem."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.result import Finding

_DEEP = 500  # queues hold about a thousand launches (measured on an H200: 1021)
_SLOW = 10  # times the median launch with a shallower queue


def full_queue(run: Run) -> list[Finding]:
    """Returns at most one finding, on launches that block because the launch queue is full.

    The finding is always harmless. It explains why `cudaLaunchKernel` looks slow.
    """
    calls, depth = run.launch_depth
    chosen = run.inside[calls]
    calls, depth = calls[chosen], depth[chosen]
    if not len(calls):
        return []
    length = run.host_length[calls]
    deep = depth >= _DEEP
    blocked = deep & (length > _SLOW * np.median(length[~deep] if (~deep).any() else length))
    rows = calls[blocked]
    if len(rows) < 3:
        return []
    longest = rows[run.host_length[rows].argmax()]
    group = Group(int(run.places.place[longest]), run.places.op_name(int(longest)), rows)
    return [
        run.finding(
            "full-queue",
            group,
            title="The launch queue was full: back-pressure, not a problem",
            saw=f"{len(rows):,} launches blocked with {int(np.median(depth[blocked])):,} ops queued (median): the host "
            "is so far ahead that a launch has to wait for the device, so launching only looks slow",
            fix="nothing: the device always has work here, and a faster host would only wait longer",
            safe_if="—",
            count=len(rows),
            total_exposed_ns=0,
            harmless=True,
        )
    ]
