"""Overlap between the streams of one device."""

from __future__ import annotations

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64
from unstall.timeline.intervals import Intervals

LONELY = 0.02
"""If a stream overlaps with other streams for at most this share of its busy time, the stream saves no time."""

FILLS = 950
"""A kernel that uses at least these thousandths of the device leaves no room for another beside it."""
_MOSTLY = 0.95  # of the time of kernels


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


def fills_device(run: Run, ops: I64) -> bool:
    """Returns whether most of the time of the device ops `ops` goes to kernels that are known to fill their device."""
    device = run.timeline.device
    length = (device.end - device.start)[ops]
    return bool(len(ops)) and int(length[device.share[ops] >= FILLS].sum()) >= _MOSTLY * int(length.sum())
