"""Finds the Python stacks of faults: where the work that failed was launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstall.timeline.fault_details import FaultDetails
from unstall.virtual.faults.fault_log import FaultLog
from unstall.virtual.faults.table import captured_at, details_of, replayed_at
from unstall.virtual.log import Stack
from unstall.virtual.simulation.history import Happened


@dataclass(frozen=True, slots=True)
class FailedAt:
    """An assertion that failed in a kernel.

    Attributes:
        details: The kernel, the assertion, and the value that was wrong.
        stream: The number of the stream.
        stack: The stack from which the kernel was launched. For an autograd thread, the stack of the call that waits
            for this thread.
        in_backward: Whether an autograd thread launched the kernel.
        replayed: The stack from which the kernel's graph was launched. Empty if the kernel is not in a graph.
    """

    details: FaultDetails
    stream: int
    stack: Stack
    in_backward: bool
    replayed: Stack


def failures(log: FaultLog, happened: Happened, stacks: Sequence[Stack]) -> list[FailedAt]:
    """Returns the faults so far, in order of time."""
    found = []
    for fault in log.faults():
        launched = captured_at(fault, happened) if fault.node else fault.record
        replay = replayed_at(fault, happened) if fault.node else -1
        of_python = np.flatnonzero(happened.stack[: launched + 1] >= 0)
        in_backward = launched >= 0 and bool(happened.stack[launched] < 0)
        stack = stacks[happened.stack[of_python[-1]]] if len(of_python) else ()
        replayed = stacks[happened.stack[replay]] if replay >= 0 and happened.stack[replay] >= 0 else ()
        found.append(FailedAt(details_of(fault.raw), fault.stream, stack, in_backward, replayed))
    return found
