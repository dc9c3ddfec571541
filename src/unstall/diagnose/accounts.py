"""Divides the analysed time of a run (its steps) into busy time, by kind of work, and idle time, by
cause.

Every nanosecond of the analysed time counts exactly once.
"""

from __future__ import annotations

import numpy as np

from unstall.locate.kinds import is_communication
from unstall.result import IDLE_CAUSES, Accounts, Busy, Idle
from unstall.timeline.columns import I8, I32, I64, Bool, DeviceKind, Table, Timeline
from unstall.timeline.intervals import Intervals

CAUSE = {name: code for code, name in enumerate(IDLE_CAUSES)}


class Gaps(Table, frozen=True, eq=False):
    """Intervals in which one device was idle, or in which all devices were idle at the same time.

    The attributes are columns with one element per interval. The intervals are sorted by time.

    Attributes:
        start: When the interval begins, in ns.
        end: When the interval ends, in ns.
        cause: Why the device was idle, as an index into `result.IDLE_CAUSES`.
        op: The op that ends the interval, as the index of a row of `timeline.device`; -1 if there
            is none.
        culprit: The event of the host to blame, such as a wait, an allocation or a late launch, as
            the index of a row of `timeline.host`; -1 if there is none.
        behind: For the usual latency of a launch for which the device had waited, why it had
            waited, as an index into `result.IDLE_CAUSES`. -1 for other intervals.
    """

    start: I64
    end: I64
    cause: I8
    op: I32
    culprit: I32
    behind: I8

    @property
    def length(self) -> I64:
        """The length of each interval, in ns."""
        return self.end - self.start

    def lost_to(self, *causes: str) -> Bool:
        """Returns a mask of the idle intervals that have one of `causes`.

        Each launch has a usual latency, which costs no time if the host runs ahead of the device.
        If a launch was late, the device was idle during this latency too. Such an interval has the
        cause of the late launch.
        """
        codes = [CAUSE[cause] for cause in causes]
        chosen: Bool = np.isin(self.cause, codes) | np.isin(self.behind, codes)
        return chosen


def busy_parts(timeline: Timeline, ops: Bool, window: tuple[int, int]) -> tuple[Busy, Intervals, int]:
    """Returns `(parts, intervals, comm_ns)` for the work of devices in a time window.

    Args:
        timeline: The recorded run.
        ops: A mask over the rows of `timeline.device`: the ops that count.
        window: The start and the end of the time window, in ns.

    Returns:
        `parts` has the busy time of each kind of work, in ns. `intervals` has the intervals in
        which some op ran. `comm_ns` is the time in which a collective was running, in ns.
    """
    device = timeline.device
    comm = is_communication(timeline)

    def union(chosen: Bool) -> Intervals:
        rows = ops & chosen
        return Intervals.union(device.start[rows], device.end[rows]).clip(*window)

    copies = union((device.kind == DeviceKind.COPY) & ~comm)
    compute = union((device.kind != DeviceKind.COPY) & ~comm)
    work = compute | copies
    communicating = union(comm)
    everything = work | communicating
    both = compute.total + copies.total - work.total
    parts = Busy(
        compute=compute.total - both,
        copy=copies.total - both,
        both=both,
        comm=everything.total - work.total,
    )
    return parts, everything, communicating.total


def account(busy: Busy, gaps: Gaps, window: tuple[int, int], comm_ns: int) -> Accounts:
    """Returns where the time of a window goes: busy time by kind of work, and idle time by cause.

    The parts add up to the length of the window.

    Args:
        busy: The busy time in the window, by kind of work.
        gaps: The idle intervals in the window, with their causes.
        window: The start and the end of the window, in ns.
        comm_ns: The time in the window in which a collective was running, in ns.
    """
    sums = np.zeros(len(IDLE_CAUSES), dtype=np.int64)
    np.add.at(sums, gaps.cause, gaps.length)
    idle = Idle(**{name: int(sums[code]) for name, code in CAUSE.items()})
    return Accounts(wall_ns=window[1] - window[0], busy_ns=busy, idle_ns=idle, comm_ns=comm_ns)
