"""Overlap between the streams of one device."""

from __future__ import annotations

from unstall.diagnose.run import Run
from unstall.timeline.intervals import Intervals

LONELY = 0.02
"""If a stream overlaps with other streams for at most this share of its busy time, the stream saves no time."""


def overlap(run: Run, device: int, stream: int) -> tuple[int, int]:
    """Returns (work, overlap) in ns for a stream of a device.

    `work` is how long the stream was busy. `overlap` is how long another stream of the device was busy at the same
    time.
    """
    ops = run.timeline.device
    here = run.ops_inside & (ops.device == device)
    own, others = here & (ops.stream == stream), here & (ops.stream != stream)
    work = Intervals.union(ops.start[own], ops.end[own])
    return work.total, (work & Intervals.union(ops.start[others], ops.end[others])).total
