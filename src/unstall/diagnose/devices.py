"""Several devices in one process: detects devices that are idle because they wait for another device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diagnose.run import Run
from unstall.result import IDLE_CAUSES
from unstall.timeline.columns import I32, I64
from unstall.timeline.intervals import Intervals


@dataclass(frozen=True, eq=False, slots=True)
class IdleTurns:
    """The intervals in which one device was idle because it waited for an event.

    In each interval, other devices worked for at least half of the time.
    """

    start: I64
    end: I64
    culprit: I32  # host row of the launch that was held, or -1

    @property
    def length(self) -> I64:
        """The length of each interval, in ns."""
        return self.end - self.start


def waits_for_others(run: Run) -> list[IdleTurns]:
    """Returns, for each device, the intervals in which it waited for other devices. With only one device, returns
    []."""
    if len(run.by_device) < 2:
        return []
    work = run.work(run.ops_inside)
    turns = []
    for accounts, gaps in run.by_device:
        others = Intervals.none()
        for number, spans in work.items():
            if number != accounts.device:
                others |= spans
        held = gaps.cause == IDLE_CAUSES.index("event")
        chosen = np.flatnonzero(held & (2 * others.covered(gaps.start, gaps.end) >= gaps.length))
        turns.append(IdleTurns(gaps.start[chosen], gaps.end[chosen], gaps.culprit[chosen]))
    return turns


def one_at_work(run: Run) -> int:
    """Returns how long exactly one device works in the window, in ns."""
    several, some = Intervals.none(), Intervals.none()
    for spans in run.work(run.ops_inside).values():
        several |= some & spans
        some |= spans
    return (some - several).clip(*run.window).total
