"""Computes how long the device alone needs for the device ops of a recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I64


@dataclass(frozen=True, eq=False, slots=True)
class DeviceWork:
    """The times of the ops of a recording, as int64 ns.

    Attributes:
        start: When each op began.
        end: When each op ended.
        launched: When the call that launched each op returned.
    """

    start: I64
    end: I64
    launched: I64

    @property
    def own_time_ns(self) -> int:
        """The time in ns that the device alone needs for the ops. It does not depend on how early
        the host launches them.

        It includes the time for which the device was busy. It also includes the time for which the
        device was idle although the next op was already launched. This happens, for example, if
        streams wait for each other.
        """
        if not len(self.start):
            return 0
        order = np.argsort(self.start, kind="stable")
        start, launched, reach = self.start[order], self.launched[order], np.maximum.accumulate(self.end[order])
        waited = np.minimum(launched[1:], start[1:]) - reach[:-1]
        return int(reach[-1] - start[0] - np.maximum(waited, 0).sum())


def on_device(ops: tuple[I64, I64, I64], calls: tuple[I64, I64]) -> DeviceWork:
    """Returns the times of a recording's ops, each with the time of the call that launched it. If
    this call is unknown, the op's start is used as its launch time.

    Args:
        ops: (start, end, correlation) of each op.
        calls: (correlation, end) of each call that may launch ops.
    """
    start, end, correlation = ops
    of_call, ended = calls
    launched = start.copy()
    if len(of_call):
        order = np.argsort(of_call, kind="stable")
        call = order[np.minimum(np.searchsorted(of_call[order], correlation), len(order) - 1)]
        known = (of_call[call] == correlation) & (correlation >= 0)
        launched[known] = ended[call[known]]
    return DeviceWork(start, end, launched)
