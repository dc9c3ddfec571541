"""The host clock that models what involves a device, and measures the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.log import ON_HOST, LogCode, Stack, Within
from unstall.virtual.simulation.free_work import FreeWork
from unstall.virtual.simulation.host_clock import Moment
from unstall.virtual.simulation.measured_host import MeasuredHost
from unstall.virtual.simulation.modelled_host import ModelledHost


class MixedHost:
    """A host clock that uses modelled times for operators and calls that involve a device. An
    operator on the CPU takes its real time, multiplied by `scale`. Work outside of operators takes
    its modelled time, or its real time multiplied by `scale`, whichever is longer.
    """

    def __init__(self, costs: HostCosts) -> None:
        self._modelled = ModelledHost(costs)
        self._measured = MeasuredHost()
        self.free = FreeWork()

    @property
    def scale(self) -> float:
        """The time of the CPU's work on the modelled host, over its time on this machine."""
        return self._measured.scale

    @scale.setter
    def scale(self, scale: float) -> None:
        self._measured.scale = scale

    def know(self, stacks: Sequence[Stack]) -> None:
        self._modelled.know(stacks)

    def work(self, records: np.ndarray, usual: I64, woken: Bool, begun: Bool) -> I64:
        modelled = self._modelled.work(records, usual, woken, begun)
        measured = self._measured.work(records, usual, woken, begun)
        within = records["within"]
        outside = within == Within.NO_OPERATOR
        begins = (records["code"] == LogCode.OP_BEGIN) & ((records["flags"] & ON_HOST) > 0)
        on_host = (within == Within.HOST_OPERATOR) | (outside & begins)
        return np.where(on_host, measured, np.where(outside, np.maximum(modelled, measured), modelled))

    def read(self, moment: Moment) -> int:
        return max(self._modelled.read(moment), self._measured.read(moment))

    def leave_out(self, thread: int, ns: int) -> None:
        self._measured.leave_out(thread, ns)
