"""Finds out that launches block because CUDA_LAUNCH_BLOCKING is set: host and device take turns."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.result import Finding
from unstall.timeline.columns import HostKind

_LAUNCHES = (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH, HostKind.MEMSET)


def launches_block(run: Run) -> list[Finding]:
    """Returns at most one finding, for the whole run: each launch blocks until its work is done,
    because CUDA_LAUNCH_BLOCKING is set.

    The finding's exposed time is 0, because the idle time counts for the lines that launch.
    """
    if not run.timeline.meta.launches_block:
        return []
    host = run.timeline.host
    rows = np.flatnonzero(np.isin(host.kind, _LAUNCHES) & run.inside)
    if not len(rows):
        return []
    took = run.per_step(int(run.host_length[rows].sum()))
    finding = run.finding(
        "launches-block",
        Group(-1, None, rows),
        title="Each launch waits until its kernel is done: CUDA_LAUNCH_BLOCKING is 1",
        saw=f"{counted(len(rows), 'launch')}, {duration(took)} a step: the host prepares nothing meanwhile, "
        "and streams do not overlap",
        fix="unset CUDA_LAUNCH_BLOCKING: it is for finding the line of an error",
        safe_if="you are not looking for the line of an error",
        count=len(rows),
        total_exposed_ns=0,
    )
    return [replace(finding, edit="free-launches")]  # at all lines
