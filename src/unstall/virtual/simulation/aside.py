"""Work that no model charges, on threads that others join."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I64
from unstall.virtual.log import OF_MOMENTS, LogCode
from unstall.virtual.simulation.host_clock import previous


class Aside:
    """Finds how long joins wait for work that no model charges."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._worked: dict[int, int] = {}  # by thread: ns of such work that no other thread has waited for
        self._given: dict[int, int] = {}  # by moment of a thread: the same, up to then

    def wait(self, records: np.ndarray, beyond: I64) -> None:
        """Adds to the work of each record that joins another thread what that thread did while it was waited for.

        Args:
            records: The next records of the shim's log.
            beyond: For each record, for how many ns its thread did such work before it. It is changed.
        """
        last = previous(records["thread"], records["host_ns"].astype(np.int64), self._last, -1)
        thread = records["thread"]
        for row in np.flatnonzero((beyond > 0) | OF_MOMENTS[records["code"]]).tolist():
            mine, moment, code = int(thread[row]), int(records["a"][row]), records["code"][row]
            if code == LogCode.TAKE:
                worked = self._given.pop(moment, 0)
                if last[row] >= 0:  # else it only begins
                    beyond[row] += min(worked, max(moment - int(last[row]), 0))
            self._worked[mine] = self._worked.get(mine, 0) + int(beyond[row])
            if code == LogCode.GIVE:
                self._given[moment] = self._worked.pop(mine)
