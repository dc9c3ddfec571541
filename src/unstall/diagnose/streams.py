"""Streams of one device beside each other."""

from __future__ import annotations

from unstall.diagnose.intervals import Intervals
from unstall.diagnose.run import Run

LONELY = 0.02
"""Of a stream's own time: one that overlaps with others for no more might as well not be there."""


def overlap(run: Run, device: int, stream: int) -> tuple[int, int]:
    """(ns for which a stream was at work, ns of it with another stream of its device at work too)."""
    ops = run.timeline.device
    here = run.ops_inside & (ops.device == device)
    own, others = here & (ops.stream == stream), here & (ops.stream != stream)
    work = Intervals.union(ops.start[own], ops.end[own])
    return work.total, (work & Intervals.union(ops.start[others], ops.end[others])).total
