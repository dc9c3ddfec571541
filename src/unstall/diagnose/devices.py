"""Runs with several devices in one process: finds when a device is idle because it waits for another device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diagnose.run import Run
from unstall.result import IDLE_CAUSES
from unstall.timeline.columns import I32, I64
from unstall.timeline.intervals import Intervals


@dataclass(frozen=True, eq=False, slots=True)
class IdleTurns:
    """Intervals in which one device was idle because it waited for an event of a stream. In each
    interval, other devices worked for at least half of the time.

    The attributes are columns with one element per interval.

    Attributes:
        start: When the interval begins, in ns.
        end: When the interval ends, in ns.
        culprit: The launch that had to wait for the event, as the index of a row of
            `timeline.host`; -1 if it is not known.
    """

    start: I64
    end: I64
    culprit: I32

    @property
    def length(self) -> I64:
        """The length of each interval, in ns."""
        return self.end - self.start


def waits_for_others(run: Run) -> list[IdleTurns]:
    """Returns, for each device, the intervals in which it was idle because it waited for other
    devices. Returns [] if the run has only one device.
    """
    if len(run.by_device) < 2:
        return []
    # A device does not work within its own gaps, so the work of all devices is that of the others.
    work = Intervals.union(*_all_work(run))
    turns = []
    for _, gaps in run.by_device:
        held = gaps.cause == IDLE_CAUSES.index("event")
        chosen = np.flatnonzero(held & (2 * work.covered(gaps.start, gaps.end) >= gaps.length))
        turns.append(IdleTurns(gaps.start[chosen], gaps.end[chosen], gaps.culprit[chosen]))
    return turns


def one_at_work(run: Run) -> int:
    """Returns for how long exactly one device works during the steps, in ns."""
    start, end = (np.clip(times, *run.window) for times in _all_work(run))
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    working = np.cumsum(np.repeat((1, -1), len(start))[order])
    return int(np.diff(times[order])[working[:-1] == 1].sum())


def _all_work(run: Run) -> tuple[I64, I64]:
    """Returns (starts, ends) of the intervals in which each device works. Intervals of one device do not overlap."""
    work = [Intervals.none(), *run.work(run.ops_inside).values()]
    return np.concatenate([each.start for each in work]), np.concatenate([each.end for each in work])
