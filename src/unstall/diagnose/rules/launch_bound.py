"""Stretches in which the device is faster than the host dispatches: it idles between short kernels."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.words import duration
from unstall.result import Finding

_WORTH = 0.01  # of the window
_LATE = 0.1  # of a line's launches: with fewer, the host is ahead and only restarts late


def launch_bound(run: Run) -> list[Finding]:
    """One finding a line, for the lines whose launches come late."""
    gaps, device = run.gaps, run.timeline.device
    late = run.gaps_by("launch")
    late = late[gaps.culprit[late] >= 0]
    lost = np.zeros(len(run.timeline.host), dtype=np.int64)
    np.add.at(lost, gaps.culprit[late], gaps.length[late])
    calls, depth = run.launch_depth
    depth_of = np.zeros(len(run.timeline.host), dtype=np.int64)
    depth_of[calls] = depth
    taken = np.zeros(len(run.timeline.host), dtype=np.int64)
    joined = np.flatnonzero(device.launch >= 0)
    np.add.at(taken, device.launch[joined], (device.end - device.start)[joined])
    findings = []
    for group in run.lines(calls[run.inside[calls]]):
        exposed = int(lost[group.rows].sum())
        late_ones = (lost[group.rows] > 0).sum()
        if exposed < _WORTH * run.wall or late_ones < _LATE * len(group.rows):
            continue
        findings.append(
            run.finding(
                "launch-bound",
                group,
                title="Launch-bound: the device waits for the host to dispatch",
                saw=f"{len(group.rows):,} launches whose work takes {duration(np.median(taken[group.rows]))} (median); "
                f"{depth_of[group.rows].mean():.1f} ops were queued, on average, when the next was launched",
                fix="capture it in a CUDA graph, or torch.compile(mode='reduce-overhead'); fuse small operators; "
                "use a larger batch",
                safe_if="shapes are fixed and nothing within is read on the host (CUDA graph)",
                exposed_ns=exposed,
                wait_ns=0,
                count=len(group.rows),
                edit="graph",
            )
        )
    return findings
