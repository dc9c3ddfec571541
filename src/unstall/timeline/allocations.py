"""Joins the frees of device memory with the allocations that they free, by the addresses of the blocks."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64


def joined(device: I64 | I32, address: I64, size: I64) -> tuple[I64, I64]:
    """Joins the changes of allocated memory that are about the same block.

    Args:
        device: The device of each change, in order of time.
        address: The address of each changed block, negative if unknown.
        size: How many bytes were allocated, negative if freed.

    Returns:
        (allocation, freed). `allocation` has, for each change, the row of the allocation of its block: the row itself
        if it allocates. It is -1 if the allocation is unknown, as for a block from before the recording. `freed` has,
        for each row that allocates, the row of the block's next change, or the number of rows if there is none.
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
