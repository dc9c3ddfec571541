"""What a recording has of the device, and for how long that was at work by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I64


@dataclass(frozen=True, eq=False, slots=True)
class DeviceWork:
    """What was on the device: when it began and ended there, and when the call that put it there had ended, in ns."""

    start: I64
    end: I64
    launched: I64

    @property
    def own_time_ns(self) -> int:
        """For how long the device was at work, or idle with its next op there already, as while streams wait for each
        other: what all that takes, however far ahead the host is."""
        if not len(self.start):
            return 0
        order = np.argsort(self.start, kind="stable")
        start, launched, reach = self.start[order], self.launched[order], np.maximum.accumulate(self.end[order])
        waited = np.minimum(launched[1:], start[1:]) - reach[:-1]
        return int(reach[-1] - start[0] - np.maximum(waited, 0).sum())


def on_device(ops: tuple[I64, I64, I64], calls: tuple[I64, I64]) -> DeviceWork:
    """Of ops by start, end and correlation, and of calls by correlation and end. An op of which no call is known began
    when it was launched."""
    start, end, correlation = ops
    of_call, ended = calls
    launched = start.copy()
    if len(of_call):
        order = np.argsort(of_call, kind="stable")
        call = order[np.minimum(np.searchsorted(of_call[order], correlation), len(order) - 1)]
        known = (of_call[call] == correlation) & (correlation >= 0)
        launched[known] = ended[call[known]]
    return DeviceWork(start, end, launched)
