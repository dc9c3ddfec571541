"""Finds which calls allocated the memory that is in use on a device, at a given record of the shim's log."""

from __future__ import annotations

import numpy as np

from unstall.timeline.allocations import joined
from unstall.timeline.columns import I32, I64, Held, Host
from unstall.timeline.grouping import groups
from unstall.virtual.simulation.history import Allocated

_MOST = 1_000  # parts; smaller parts are merged into one part without a known call


def held_table(allocated: Allocated, host_row: I32, host: Host, device: int, until: int) -> Held:
    """Returns the memory that was allocated on a device right before a given record of the shim's
    log. A row has all of this memory that one operator allocated from one Python stack. The row
    with the most bytes is first.

    Args:
        allocated: All allocations of the run.
        host_row: For each record of the shim's log, the index in `host` of its call, or of the
            operator that encloses it; -1 if there is neither.
        host: The calls and operators of the run.
        device: The device.
        until: The number of the record.
    """
    record, size = live(allocated, device, until)
    row = host_row[record]
    operator = np.append(host.op, np.int32(-1))[row]
    row = np.where(operator >= 0, operator, row)  # in place of the call of cudaMalloc within it
    known = np.maximum(row, 0)
    width = int(host.name.max(initial=0)) + 1
    key = np.where(row >= 0, host.stack[known].astype(np.int64) * width + host.name[known], -1 - width)
    parts = [(int(row[mine[0]]), int(size[mine].sum()), len(mine)) for _, mine in groups(key)]
    parts.sort(key=lambda part: -part[1])
    shown, rest = parts[:_MOST], parts[_MOST:]
    if rest:
        shown.append((-1, sum(part[1] for part in rest), sum(part[2] for part in rest)))
    columns = np.array(shown, np.int64).reshape(-1, 3).T
    return Held(call=columns[0].astype(np.int32), bytes=columns[1], count=columns[2])


def live(allocated: Allocated, device: int, until: int) -> tuple[I64, I64]:
    """Returns the allocations on a device that were not yet freed right before a given record of
    the shim's log.

    Args:
        allocated: All allocations of the run.
        device: The device.
        until: The number of the record.

    Returns:
        `(record, size)`, with an element for each allocation. `record` is the number of the record
        that allocated the memory; for the workspace of an operator, it is the number of the
        operator's launch. `size` is in bytes.
    """
    before = (allocated.device == device) & (allocated.record < until)
    record, size = allocated.record[before], allocated.size[before]
    _, freed = joined(allocated.device[before], allocated.address[before], size)
    held = (size > 0) & (freed == len(size))
    return record[held], size[held]
