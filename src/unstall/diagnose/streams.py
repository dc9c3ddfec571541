"""Overlap between the streams of one device."""

from __future__ import annotations

from unstall.diagnose.run import Run
from unstall.timeline.intervals import Intervals

LONELY = 0.02
"""A stream that overlaps with others for less than this share of its own time gains nothing."""


def overlap(run: Run, device: int, stream: int) -> tuple[int, int]:
    """Returns (work, overlap) in ns for a stream of a device.

    Work is how long the stream was busy. Overlap is how long another stream of the device was busy at the same time.
    """
    ops = run.timeline.device
    here = run.ops_inside & (ops.device == device)
    own, others = here & (ops.stream == stream), here & (ops.stream != stream)
    work = Intervals.union(ops.start[own], ops.end[own])
    return work.total, (work & Intervals.union(ops.start[others], ops.end[others])).total
