"""Many tiny kernels in a row from one line: an unfused optimizer, a chain of elementwise operators."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import duration
from unstall.result import Finding
from unstall.timeline import HostKind

_TINY_NS = 5_000  # shorter than it takes the host to launch one
_REPEATS = 8  # the same few kernels again and again, as loops over parameters make them
_ROW = 32  # so many launches of one line, one after the other, and all tiny
_WORTH = 0.01  # of the window


def tiny_kernels(run: Run) -> list[Finding]:
    """One finding a line. `exposed` is the idle time between these kernels: launch and latency.

    launch_bound may count the same time: a graph over the whole stretch is the other way out of it.
    """
    timeline = run.timeline
    host, device = timeline.host, timeline.device
    joined = np.flatnonzero((device.launch >= 0) & run.ops_inside)
    single = joined[host.kind[device.launch[joined]] == HostKind.LAUNCH]
    single = single[np.argsort(host.start[device.launch[single]], kind="stable")]
    call = device.launch[single]
    tiny = (device.end - device.start)[single] < _TINY_NS
    place = np.where(tiny, run.places.place[call], -2)
    cuts = np.flatnonzero(np.append(True, place[1:] != place[:-1])) if len(place) else place
    length = np.diff(np.append(cuts, len(place)))
    in_row = np.repeat((length >= _ROW) & (place[cuts] != -2), length) if len(place) else tiny
    between = run.lost_to("launch", "latency")
    findings = []
    for group in run.lines(call[in_row].astype(np.int64)):
        exposed = int(between[group.rows].sum())
        mine = run.ops_of(group.rows)
        alike = len(np.unique(device.name[mine])) * _REPEATS <= len(mine)
        if exposed < _WORTH * run.wall or not alike:
            continue
        median = float(np.median((device.end - device.start)[mine]))
        findings.append(
            run.finding(
                "tiny-kernels",
                group,
                title="Many tiny kernels in a row",
                saw=f"{len(group.rows):,} kernels of {duration(int(median))} (median), in rows of {_ROW} or more",
                fix="fuse them: torch.compile; foreach=True or fused=True for optimizers; torch._foreach_* for lists "
                "of tensors; one large operator instead of a loop",
                safe_if="the fused version is numerically good enough (rounding may differ)",
                total_wait_ns=0,
                total_exposed_ns=exposed,
                count=len(group.rows),
                confidence="medium",
            )
        )
    return findings
