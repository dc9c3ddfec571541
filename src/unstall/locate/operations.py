"""Finds which host calls belong to the same operation. An operation is an operator. In a run
without recorded operators, an operation is a copy together with the wait for this copy.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, HostKind, Timeline, WaitKind

_AT_ONCE_NS, _IN_ONE_LINE_NS = 20_000, 10_000_000
"""The longest time in ns from the end of a copy call to the wait for the copy, if one function of
torch makes both. The first value is for calls whose line is not known, the second for calls that
are known to be in one line. On the hosts of an H200 and an H100, this time was 0.2 to 9 µs, and up
to 2.1 ms under `unstall.no_sync`, which looks at the wait before it begins. Two separate Python
statements may be as close in time, but they are on different lines.
"""


def has_operators(timeline: Timeline) -> bool:
    """Returns whether the recorder recorded operators. A recorder that records only CUDA calls does not."""
    return bool((timeline.host.kind == HostKind.OP).any())


def operations(timeline: Timeline, operator: I32) -> I32:
    """Returns a number for each row of `timeline.host`. All rows of one operation have the same
    number. A row outside of all operations has -1.

    If operators were recorded, an operation is an operator, and the result is `operator`. If no
    operators were recorded, an operation is a copy together with a wait for the copy's stream. The
    wait must follow the copy immediately, on the same thread and in the same line. The number of
    the operation is the row of the copy.

    Args:
        timeline: A recorded run.
        operator: For each row of `timeline.host`, the row of the operator around it, or -1.
    """
    if has_operators(timeline):
        return operator
    host, device, waits = timeline.host, timeline.device, timeline.waits
    found = np.full(len(host), -1, dtype=np.int32)
    copied_on, waited_on = found.copy(), found.copy()
    launched = device.launch >= 0
    copied_on[device.launch[launched]] = device.stream[launched]
    is_stream_wait = np.zeros(len(host), dtype=np.bool_)
    is_stream_wait[waits.host[waits.kind == WaitKind.STREAM]] = True
    waited_on[waits.host] = waits.stream
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    copy, wait = calls[:-1], calls[1:]
    belong = (
        (host.kind[copy] == HostKind.COPY)
        & (copied_on[copy] >= 0)
        & is_stream_wait[wait]
        & ((waited_on[wait] == copied_on[copy]) | (waited_on[wait] < 0))
        & (host.thread[copy] == host.thread[wait])
        & (host.stack[copy] == host.stack[wait])
        & (host.start[wait] - host.end[copy] <= np.where(host.stack[copy] >= 0, _IN_ONE_LINE_NS, _AT_ONCE_NS))
    )
    found[copy[belong]] = found[wait[belong]] = copy[belong]
    return found
