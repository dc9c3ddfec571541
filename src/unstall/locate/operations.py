"""Groups host calls by operation: an operator or, if none were recorded, a copy and the wait for it."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, HostKind, Timeline, WaitKind

_AT_ONCE_NS = 20_000
"""Longest time from the end of a copy's call to the wait for it, if torch makes both: 0.2 to 9 us on an H200's host
while recording. Two Python statements may be as close, but they are on different lines."""


def has_operators(timeline: Timeline) -> bool:
    """Returns whether the run has operators. Recorders of CUDA calls alone do not record operators."""
    return bool((timeline.host.kind == HostKind.OP).any())


def operations(timeline: Timeline, operator: I32) -> I32:
    """Returns a number for each host row, or -1 for a row outside of any operation. Rows of one operation share a
    number.

    If operators were recorded, the result is `operator`, which gives the row of the operator around each host row.
    If not, there is one kind of operation: a copy, together with a wait for the copy's stream that follows at once, on
    the same thread and line. Its number is the copy's row.
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
        & (host.start[wait] - host.end[copy] <= _AT_ONCE_NS)
    )
    found[copy[belong]] = found[wait[belong]] = copy[belong]
    return found
