"""Finds the Python stacks from which work that failed on the device was launched."""

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
    """An assertion that failed in a kernel, and where the kernel was launched.

    Attributes:
        details: The kernel, the assertion, and the value that was wrong.
        stream: The number of the kernel's stream.
        stack: The Python stack from which the kernel was launched. If an autograd thread launched
            it, the stack of the call that waits for this thread.
        in_backward: Whether an autograd thread launched the kernel.
        replayed: The stack from which the CUDA graph with the kernel was launched. Empty if the
            kernel is not in a graph.
    """

    details: FaultDetails
    stream: int
    stack: Stack
    in_backward: bool
    replayed: Stack


def failures(log: FaultLog, happened: Happened, stacks: Sequence[Stack]) -> list[FailedAt]:
    """Returns the faults so far, in the order in which they occurred.

    Args:
        log: The faults.
        happened: The records of the shim's log.
        stacks: The Python stacks to which these records refer by number.
    """
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
