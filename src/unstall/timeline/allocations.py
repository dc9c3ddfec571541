"""Finds, for each free of device memory, the allocation that it frees, by the addresses of the blocks."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64


def joined(device: I64 | I32, address: I64, size: I64) -> tuple[I64, I64]:
    """Joins allocations and frees of the same block. Each row is one allocation or one free, in
    order of time.

    Args:
        device: The device of each row.
        address: The address of the block; negative if unknown.
        size: How many bytes were allocated; negative if they were freed.

    Returns:
        `(allocation, freed)`. `allocation` has, for each row, the row of the allocation of its
        block: the row itself if it is an allocation, -1 if that is unknown, as for a block from
        before the recording. `freed` has, for each allocation, the next row with the same block, or
        the number of rows if there is none.
    """
    count = len(size)
    allocation, freed = np.full(count, -1, np.int64), np.full(count, count, np.int64)
    rows = np.flatnonzero((address >= 0) & (size != 0))
    rows = rows[np.lexsort((rows, address[rows], device[rows]))]
    before, after = rows[:-1], rows[1:]
    same = (address[before] == address[after]) & (device[before] == device[after]) & (size[before] > 0)
    freed[before[same]] = after[same]
    allocation[after[same]] = before[same]
    allocates = rows[size[rows] > 0]
    allocation[allocates] = allocates
    return allocation, freed
