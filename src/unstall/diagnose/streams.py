"""Finds how much the streams of one device overlap."""

from __future__ import annotations

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64
from unstall.timeline.intervals import Intervals

LONELY = 0.02
"""If a stream overlaps with other streams for at most this share of its busy time, it counts as a
stream that saves no time.
"""

FILLS = 900
"""A kernel that uses at least this many thousandths of the device leaves no room for another kernel beside it: two such
kernels on two streams gain at most 5 %. The median of large products of float32 matrices is 940 on an H200.
"""
_MOSTLY = 0.95  # of the time of kernels


def overlap(run: Run, device: int, stream: int) -> tuple[int, int]:
    """Returns `(work, overlap)` for one stream of a device, in ns. `work` is how long the stream
    was busy. `overlap` is for how much of this time another stream of the device was busy too.

    Args:
        run: The recorded run.
        device: The number of the device.
        stream: The number of the stream.
    """
    ops = run.timeline.device
    here = run.ops_inside & (ops.device == device)
    own, others = here & (ops.stream == stream), here & (ops.stream != stream)
    work = Intervals.union(ops.start[own], ops.end[own])
    return work.total, (work & Intervals.union(ops.start[others], ops.end[others])).total


def fills_device(run: Run, ops: I64) -> bool:
    """Returns whether kernels that are known to fill their device take most of the time of some
    ops. `ops` are indices of rows of `timeline.device`.
    """
    device = run.timeline.device
    length = (device.end - device.start)[ops]
    return bool(len(ops)) and int(length[device.share[ops] >= FILLS].sum()) >= _MOSTLY * int(length.sum())
