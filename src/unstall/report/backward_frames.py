"""Cuts the Python frames of autograd's threads by step.

All steps call `backward()` on one source line, so all backward passes have the same stack. A trace therefore has one
Python frame from the first backward pass to the last, although the thread runs nothing between two passes.
"""

from __future__ import annotations

import re

import numpy as np

from unstall.locate.kinds import named
from unstall.timeline.columns import I64, HostKind, Timeline

_AUTOGRAD = re.compile(r".{0,200}\bautograd\b|.{0,200}pt_autograd_\d", re.IGNORECASE)
"""Pattern for the thread names of autograd's engine, such as torch's name `pt_autograd_0`."""


def cut_by_step(timeline: Timeline, rows: I64, step_starts: I64) -> tuple[I64, I64, I64]:
    """Cuts the Python frames of autograd's threads by step.

    A frame that lasts several steps becomes one part for each step. A part lasts from the first to
    the last work of its thread in that step. Frames of other threads, and frames within one step,
    stay as they are.

    Args:
        timeline: The run.
        rows: The rows of `timeline.host` that are Python frames.
        step_starts: The start of each step in ns, ascending.

    Returns:
        `(rows, starts, ends)`: for each frame or part to draw, its row of `timeline.host`, and its
        start and end in ns.
    """
    host = timeline.host
    start, end = host.start[rows], host.end[rows]
    of_autograd = named(timeline, _AUTOGRAD, timeline.threads.name)[host.thread[rows]]
    first, last = (np.searchsorted(step_starts, times, side="right") for times in (start, end - 1))
    several = np.flatnonzero(of_autograd & (last > first))
    if not len(several):
        return rows, start, end
    kept = np.ones(len(rows), dtype=np.bool_)
    kept[several] = False
    parts = [(rows[kept], start[kept], end[kept])]
    for thread in np.unique(host.thread[rows[several]]):
        mine = several[host.thread[rows[several]] == thread]
        work = np.flatnonzero((host.thread == thread) & (host.kind != HostKind.PYTHON))
        step = np.searchsorted(step_starts, host.start[work], side="right")
        begins = np.full(len(step_starts) + 1, np.iinfo(np.int64).max)
        ends = np.full(len(step_starts) + 1, -1, dtype=np.int64)
        np.minimum.at(begins, step, host.start[work])
        np.maximum.at(ends, step, host.end[work])
        count = last[mine] - first[mine] + 1
        frame = np.repeat(mine, count)
        number = np.arange(len(frame)) - np.repeat(np.cumsum(count) - count, count) + first[frame]
        low, high = np.maximum(start[frame], begins[number]), np.minimum(end[frame], ends[number])
        ran = high > low
        parts.append((rows[frame[ran]], low[ran], high[ran]))
    cut_rows, cut_start, cut_end = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(cut_start, kind="stable")
    return cut_rows[order], cut_start[order], cut_end[order]
