"""The host clock that uses the times of this machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.log import LogCode, Stack
from unstall.virtual.simulation.free_work import FreeWork
from unstall.virtual.simulation.host_clock import Moment, previous


class MeasuredHost:
    """A host clock that uses the times of this machine. It leaves out the time in which values of
    tensors were computed, in which another process had the thread's core, and that the simulation
    took. A thread that joins another one does not work meanwhile.

    Attributes:
        scale: The factor by which measured times are multiplied, except times of sleep.
    """

    def __init__(self) -> None:
        self.scale, self.free = 1.0, FreeWork()
        self._last: dict[int, int] = {}
        self._end = 0
        self._left_out: dict[int, int] = {}

    def know(self, stacks: Sequence[Stack]) -> None:
        return

    def work(self, records: np.ndarray, usual: I64, woken: Bool, begun: Bool) -> I64:
        now = records["host_ns"].astype(np.int64)
        own = before = previous(records["thread"], now, self._last, -1)
        in_log = np.append(self._end or now[0], now[:-1]) if len(now) else now
        before = np.where(woken | (before < 0), in_log, before)
        before = np.where(records["code"] == LogCode.TAKE, np.maximum(records["a"], own), before)
        self._end = int(now[-1]) if len(now) else self._end
        slept = np.where(records["code"] == LogCode.ADVANCE, records["a"], 0)
        passed = now - before - records["computing_ns"] - slept - self._take_left_out(records["thread"])
        work: I64 = np.rint(np.maximum(passed, 0) * self.scale).astype(np.int64) + slept
        return work

    def read(self, moment: Moment) -> int:
        before = self._last.get(moment.thread, moment.host_ns)
        self._last[moment.thread] = moment.host_ns
        passed = moment.host_ns - before - moment.computing_ns - self._left_out.pop(moment.thread, 0)
        return round(max(passed, 0) * self.scale)

    def leave_out(self, thread: int, ns: int) -> None:
        self._left_out[thread] = self._left_out.get(thread, 0) + ns

    def _take_left_out(self, thread: np.ndarray) -> I64:
        """Returns, for each record, how much of the real time before it does not count as work, in
        ns. That is what `leave_out` was told since the last call, and it all goes to the first
        record of its thread.
        """
        ns = np.zeros(len(thread), np.int64)
        for number in list(self._left_out):
            mine = np.flatnonzero(thread == number)
            if len(mine):
                ns[mine[0]] = self._left_out.pop(number)
        return ns
