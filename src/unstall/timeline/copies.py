"""Finds calls that hold the host because of their copy: until it is done, or until the data is staged."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, CopyDirection, DeviceKind, HostMemory, Timeline
from unstall.timeline.grouping import by_text

STAGED_AT_ONCE_BYTES = 64 << 10
"""The launch queue takes the data of uploads of up to this size: CUDA, "API synchronization behavior"."""


def is_synchronous(timeline: Timeline, calls: I64 | I32) -> Bool:
    """Returns a mask of those `calls` (rows of `timeline.host`) that, by their names, return only
    when their copy is done.

    A call with "Async" in its name is never in the mask, although it too waits for a copy from or
    to pageable memory.
    """
    named = by_text(timeline.host.name[calls], lambda index: index >= 0 and "Async" not in timeline.strings[index])
    return named.astype(np.bool_)


def is_staged(timeline: Timeline, copies: I64 | I32) -> Bool:
    """Returns a mask of those `copies` (rows of `timeline.device`) whose data the host itself copies
    into pinned memory of the driver, before or while the device copies it from there.

    The call returns only when the host has done so, even if the device is still busy then.
    """
    device = timeline.device
    chosen: Bool = (
        (device.kind[copies] == DeviceKind.COPY)
        & (device.direction[copies] == CopyDirection.HOST_TO_DEVICE)
        & (device.host_memory[copies] == HostMemory.PAGEABLE)
        & (device.bytes[copies] > STAGED_AT_ONCE_BYTES)
    )
    return chosen
