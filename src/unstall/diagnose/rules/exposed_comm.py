"""Collectives with no computation beside them."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.spans import Spans
from unstall.figures import counted, duration, share
from unstall.result import Finding

_WORTH = 0.005  # of the window


def exposed_comm(run: Run) -> list[Finding]:
    """One finding a line that starts collectives. `exposed` is the time with a collective and no other work."""
    device = run.timeline.device
    low, high = run.window
    others = run.ops_inside & ~run.comm
    work = Spans.union(device.start[others], device.end[others])
    ops = np.flatnonzero(run.comm & run.ops_inside & (device.launch >= 0))
    start, end = np.maximum(device.start[ops], low), np.minimum(device.end[ops], high)
    alone = end - start - work.covered(start, end)
    by_call = np.zeros(len(run.timeline.host), dtype=np.int64)
    np.add.at(by_call, device.launch[ops], alone)
    length = np.zeros(len(run.timeline.host), dtype=np.int64)
    np.add.at(length, device.launch[ops], end - start)
    findings = []
    for group in run.lines(np.unique(device.launch[ops]).astype(np.int64)):
        exposed = int(by_call[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        total = int(length[group.rows].sum())
        findings.append(
            run.finding(
                "exposed-comm",
                group,
                title="Collectives run with no computation beside them",
                saw=f"{counted(len(group.rows), 'collective')}, {duration(total)} in all, "
                f"{share(exposed, total)} of it with nothing else on the device "
                "(a rank that comes early waits inside them)",
                fix="start them earlier and wait later (DDP buckets, gradient_as_bucket_view, FSDP prefetch, "
                "async_op=True); send less (bf16, larger accumulation); look for a slow rank",
                safe_if="nothing between start and wait reads the result",
                exposed_ns=exposed,
                wait_ns=0,
                count=len(group.rows),
                confidence="medium",
            )
        )
    return findings
