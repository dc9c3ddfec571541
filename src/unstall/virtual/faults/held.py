"""Finds the calls that allocated the memory that is in use on a device at a given log record."""

from __future__ import annotations

import numpy as np

from unstall.timeline.allocations import joined
from unstall.timeline.columns import I32, I64, Held, Host
from unstall.timeline.grouping import groups
from unstall.virtual.simulation.history import Allocated

_MOST = 1_000  # parts; smaller parts are merged into one part without a known call


def held_table(allocated: Allocated, host_row: I32, host: Host, device: int, until: int) -> Held:
    """Returns the memory that was allocated on a device right before log record `until`. One row has the allocations of
    one operator from one stack. Rows are sorted by bytes, largest first.

    `host_row` has an index into `host` for each log record. It is the index of the record's call, or of the operator
    that encloses the record. It is -1 if there is neither.
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
    """Returns (record numbers, bytes) of a device's live allocations right before log record `until`. A record
    number is the number of the record that made the allocation. Workspaces of an operator have the record number of the
    operator's launch.
    """
    before = (allocated.device == device) & (allocated.record < until)
    record, size = allocated.record[before], allocated.size[before]
    _, freed = joined(allocated.device[before], allocated.address[before], size)
    held = (size > 0) & (freed == len(size))
    return record[held], size[held]
