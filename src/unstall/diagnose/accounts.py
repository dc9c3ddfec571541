"""Every nanosecond of the window has one cause: busy with what, or idle because of what, to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diagnose.activity import is_comm
from unstall.diagnose.intervals import Intervals
from unstall.result import IDLE_CAUSES, Accounts, Busy, Idle
from unstall.timeline.columns import I8, I32, I64, Bool, DeviceKind, Timeline

CAUSE = {name: code for code, name in enumerate(IDLE_CAUSES)}


@dataclass(frozen=True, eq=False, slots=True)
class Gaps:
    """Idle intervals of a device (or of all together), in order of time."""

    start: I64
    end: I64
    cause: I8  # index into result.IDLE_CAUSES
    op: I32  # device row of the op that ends it, or -1
    culprit: I32  # host row of what to blame: the wait, the allocation, the late launch; or -1

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> I64:
        """ns of each."""
        return self.end - self.start


def busy_parts(timeline: Timeline, ops: Bool, window: tuple[int, int]) -> tuple[Busy, Intervals]:
    """How long the chosen device ops kept the device busy, by kind, and when."""
    device = timeline.device
    comm = is_comm(timeline)

    def union(chosen: Bool) -> Intervals:
        rows = ops & chosen
        return Intervals.union(device.start[rows], device.end[rows]).clip(*window)

    copies = union(device.kind == DeviceKind.COPY)
    compute = union((device.kind != DeviceKind.COPY) & ~comm)
    work = compute | copies
    everything = work | union(comm)
    both = compute.total + copies.total - work.total
    parts = Busy(
        compute=compute.total - both,
        copy=copies.total - both,
        both=both,
        comm=everything.total - work.total,
    )
    return parts, everything


def account(busy: Busy, gaps: Gaps, window: tuple[int, int]) -> Accounts:
    """Sum it up. wall == busy + idle holds by construction: gaps are the complement of what is busy."""
    sums = np.zeros(len(IDLE_CAUSES), dtype=np.int64)
    np.add.at(sums, gaps.cause, gaps.length)
    idle = Idle(**{name: int(sums[code]) for name, code in CAUSE.items()})
    return Accounts(wall_ns=window[1] - window[0], busy_ns=busy, idle_ns=idle)
