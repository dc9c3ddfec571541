"""Finds launches that block because the launch queue is full. This is no problem, because the
device has enough to do.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.result import Finding


def full_queue(run: Run) -> list[Finding]:
    """Returns at most one finding: launches block because the launch queue is full.

    The finding is always marked as harmless: it costs nothing. It explains why `cudaLaunchKernel`
    looks slow.
    """
    rows, wait = run.queue_waits
    total = int(wait.sum())
    if run.negligible(total):
        return []
    longest = rows[wait.argmax()]
    group = Group(int(run.places.place[longest]), run.places.op_name(int(longest)), rows)
    calls, depth = run.launch_depth
    queued = int(np.median(depth[np.isin(calls, rows)]))
    return [
        run.finding(
            "full-queue",
            group,
            title="The launch queue was full: back-pressure, not a problem",
            saw=f"{counted(len(rows), 'launch')} waited {duration(total)} in all, with {queued:,} launches queued: the "
            "host is so far ahead that a launch has to wait for the device. Launching only looks slow: a clock around "
            "these lines shows the device's time",
            fix="nothing: the device always has work here, and a faster host would only wait longer",
            safe_if="—",
            count=len(rows),
            total_wait_ns=total,
            total_exposed_ns=0,
            harmless=True,
            explains=True,
        )
    ]
