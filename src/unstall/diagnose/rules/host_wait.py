"""Lines at which the host waits for the device: `.item()`, `.cpu()`, `if tensor`, synchronize and their kind."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.copies import other_waits
from unstall.diagnose.run import Group, Run
from unstall.diagnose.ways_to_wait import WAYS, Way
from unstall.figures import counted, duration
from unstall.result import Finding
from unstall.timeline import I32, I64

_LONGEST, _MOST_FRAMES = 512, 64  # of the frames between the wait and the user's line
_RECORDER = re.compile(r"torch/(autograd/)?profiler")
_ALLOCATOR = re.compile(r"torch/cuda/memory\.py.*empty_cache")


def host_wait(run: Run) -> list[Finding]:
    """One finding a line, operator and way of waiting. Waits for uploads are the copy rules' business."""
    rows = other_waits(run)
    rows = rows[run.inside[rows]]
    ways = _ways(run, rows)
    findings = []
    for number, way in enumerate(WAYS):
        mine = rows[ways == number]
        # What is told by its stack may wait in several operators: printing a tensor does.
        grouped = run.groups(mine) if way.frame is None else run.lines(mine)
        findings += [_finding(run, way, group) for group in grouped]
    return findings


def _finding(run: Run, way: Way, group: Group) -> Finding:
    exposed = int(run.exposed_by_waits[group.rows].sum())
    waited = int(run.host_length[group.rows].sum())
    count = run.instances(group.rows)
    busy = run.busy_during(group.rows)
    harmless = run.negligible(exposed)
    saw = (
        f"{counted(count, 'wait')} of {duration(round(waited / count))} (mean), the device at work for {busy:.0%} of it"
    )
    if harmless:
        saw += ": this costs next to nothing"
    else:
        saw += f"; the device then ran dry for {duration(round(exposed / count))} each time"
    return run.finding(
        way.rule,
        group,
        title=way.title,
        saw=saw,
        fix=way.fix,
        safe_if=way.safe_if,
        total_exposed_ns=exposed,
        edit="remove-syncs",
        harmless=harmless,
        confidence="medium" if way.rule == "sync-other" else "high",
    )


def _ways(run: Run, rows: I64) -> I64:
    """Index into WAYS for each wait; -1 for those of the recorder and of `empty_cache`."""
    host, timeline = run.timeline.host, run.timeline
    top = run.places.top_op[rows]
    op = np.where(top >= 0, host.name[np.maximum(top, 0)], -1)
    keys = np.stack([op, host.name[rows], host.stack[rows], run.places.frame[rows]]).astype(np.int64)
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    ways = np.array(
        [
            _way(timeline.text(int(name)), timeline.text(int(call)), _frames(run, int(stack), int(user)))
            for name, call, stack, user in distinct.T
        ],
        dtype=np.int64,
    )
    return ways[which.reshape(-1)] if len(rows) else ways


def _way(op: str, call: str, frames: str) -> int:
    if _RECORDER.search(frames) or _ALLOCATOR.search(frames):
        return -1
    return next(i for i, way in enumerate(WAYS) if way.matches(op, frames, call))


def _frames(run: Run, stack: int, user: int) -> str:
    """The frames from the innermost one out to the user's, a line each."""
    timeline = run.timeline
    parent: I32 = timeline.stacks.parent
    frames = []
    while stack >= 0 and stack != user:
        line = int(timeline.stacks.line[stack])
        place = f"{timeline.text(int(timeline.lines.file[line]))}: " if timeline.lines.file[line] >= 0 else ""
        frames.append(place + timeline.text(int(timeline.lines.function[line])))
        stack = int(parent[stack])
    return "\n".join(frame[:_LONGEST] for frame in frames[:_MOST_FRAMES])
