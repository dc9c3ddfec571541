"""Stretches in which the device is faster than the host dispatches: it idles between short kernels."""

from __future__ import annotations

import numpy as np

from unstall.ancestry import depths, nearest, sums_below
from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration, share
from unstall.result import Finding
from unstall.timeline import I64, HostKind

_WORTH = 0.01  # of the window
_LATE = 0.1  # of a place's launches: with fewer, the host is ahead and only restarts late
_HOLDS = 0.8  # of the idle time, for a function to stand for the whole stretch
_MOSTLY = 0.5
_MOST_PLACES = 5  # where no stack says what belongs together


def launch_bound(run: Run) -> list[Finding]:
    """One finding, at the innermost function below which most late launches are: what a graph would capture.

    Without stacks, one finding for each of the costliest places. The same idle time may be tiny_kernels' too, which
    names another way out of it, at a place within the stretch; no other two findings share any.
    """
    lost = run.lost_to("launch")
    calls = run.launch_depth[0]
    calls = calls[run.inside[calls]]
    groups = _stretch(run, calls, lost) or run.lines(calls)
    findings = [
        _finding(run, group, lost)
        for group in groups
        if lost[group.rows].sum() >= _WORTH * run.wall and (lost[group.rows] > 0).sum() >= _LATE * len(group.rows)
    ]
    return sorted(findings, key=lambda finding: -finding.exposed_ns)[:_MOST_PLACES]


def _stretch(run: Run, calls: I64, lost: I64) -> list[Group]:
    """The launches below the innermost of the user's functions that holds most of the idle time; [] without stacks."""
    stacks, frame = run.timeline.stacks, run.places.frame[calls]
    total = int(lost[calls].sum())
    if not total or lost[calls[frame >= 0]].sum() < _HOLDS * total:
        return []
    below = np.zeros(len(stacks), dtype=np.int64)
    np.add.at(below, frame[frame >= 0], lost[calls[frame >= 0]])
    holding = np.flatnonzero((sums_below(stacks.parent, below) >= _HOLDS * total) & run.places.is_user_frame)
    if not len(holding):
        return []
    node = holding[depths(stacks.parent)[holding].argmax()]
    inside = np.append(nearest(stacks.parent, np.arange(len(stacks)) == node) >= 0, False)
    return [Group(int(stacks.line[node]), None, calls[inside[frame]])]


def _finding(run: Run, group: Group, lost: I64) -> Finding:
    device = run.timeline.device
    calls, depth = run.launch_depth
    mine = np.isin(calls, group.rows)
    ops = run.ops_of(group.rows)
    taken = (device.end - device.start)[ops]
    exposed = int(lost[group.rows].sum())
    parts = sorted(
        ((int(lost[part.rows].sum()), run.where(part)) for part in run.lines(group.rows)), key=lambda p: -p[0]
    )
    lines = ", ".join(
        f"{where.file}:{where.line} {where.function} ({share(cost, exposed)})"
        for cost, where in parts[:3]
        if where.file
    )
    graphs = (run.timeline.host.kind[group.rows] == HostKind.GRAPH_LAUNCH).mean() > _MOSTLY
    return run.finding(
        "launch-bound",
        group,
        title="Launch-bound: the device waits for the host to dispatch",
        saw=f"{counted(len(group.rows), 'launch')}, ops of "
        f"{duration(int(np.median(taken)))} (median), {depth[mine].mean():.1f} queued on average when the next is "
        "launched" + (f"; most of it at {lines}" if len(parts) > 1 and lines else ""),
        fix="launch the next replay before this one has ended (no wait in between); put more into one graph"
        if graphs
        else "capture it in a CUDA graph, or torch.compile(mode='reduce-overhead'); fuse small operators; "
        "use a larger batch",
        safe_if="a replay's inputs are not overwritten before it has read them"
        if graphs
        else "shapes are fixed and nothing within is read on the host (CUDA graph)",
        total_exposed_ns=exposed,
        total_wait_ns=0,
        count=len(group.rows),
        edit=None if graphs else "graph",
    )
