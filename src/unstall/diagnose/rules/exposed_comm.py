"""Collectives with no computation beside them."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import counted, duration, share
from unstall.result import Finding

_WORTH = 0.005  # of the window


def exposed_comm(run: Run) -> list[Finding]:
    """Returns one finding per line that starts collectives. `exposed` is the time with a collective and no other
    work."""
    device = run.timeline.device
    beside = run.work(run.ops_inside & ~run.comm)
    collectives = np.flatnonzero(run.comm & run.ops_inside & (device.launch >= 0))
    findings = []
    for group in run.lines(np.unique(device.launch[collectives]).astype(np.int64)):
        mine = np.intersect1d(run.ops_of(group.rows), collectives)
        exposed, total = run.alone(mine, beside), run.alone(mine, {})
        if exposed < _WORTH * run.wall:
            continue
        findings.append(
            run.finding(
                "exposed-comm",
                group,
                title="Collectives run with no computation beside them",
                saw=f"{counted(len(mine), 'collective')}, {duration(total)} in all, "
                f"{share(exposed, total)} of it with nothing else on the device "
                "(a rank that arrives early waits inside them)",
                fix="start them earlier and wait later (DDP buckets, gradient_as_bucket_view, FSDP prefetch, "
                "async_op=True); send less (bf16, larger accumulation); look for a slow rank",
                safe_if="nothing between start and wait reads the result",
                total_exposed_ns=exposed,
                total_wait_ns=0,
                count=len(mine),
                confidence="medium",
            )
        )
    return findings
