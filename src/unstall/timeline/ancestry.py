"""Finds ancestors of rows in a column `parent`. Such columns link host events to enclosing events,
and frames to calling frames.

The functions are vectorised by pointer doubling, and need log(depth) rounds.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool


def nearest(parent: I32, chosen: Bool) -> I32:
    """Returns, for each row, the nearest chosen row: the row itself if it is chosen, or else its
    nearest chosen ancestor. -1 if there is none.

    `parent` has, for each row, the row of its parent, or -1. `chosen` says which rows are chosen.
    """
    rows = np.arange(len(parent), dtype=np.int32)
    return _settle(np.where(chosen, rows, parent))


def outermost(parent: I32, chosen: Bool, barrier: Bool) -> I32:
    """Searches outwards from each row, up to a barrier. Returns, for each row, the outermost chosen
    row on the way; -1 if there is none.

    The search begins with the row itself, goes on from parent to parent, and stops before the first
    barrier. A row that is both chosen and a barrier counts as chosen.

    Args:
        parent: For each row, the row of its parent, or -1.
        chosen: A mask of the chosen rows.
        barrier: A mask of the rows at which the search stops.
    """
    marked = nearest(parent, chosen | barrier)
    above = np.where(parent >= 0, marked[parent], -1) if len(parent) else parent
    rows = np.arange(len(parent), dtype=np.int32)
    goes_on = (above >= 0) & chosen & chosen[np.maximum(above, 0)]
    top = _settle(np.where(goes_on, above, rows).astype(np.int32))
    ends_in_chosen = (marked >= 0) & chosen[np.maximum(marked, 0)]
    return np.where(ends_in_chosen, top[np.maximum(marked, 0)], -1).astype(np.int32)


def depths(parent: I32) -> I32:
    """Returns the number of ancestors of each row. `parent` has, for each row, the row of its parent, or -1."""
    depth = (parent >= 0).astype(np.int32)
    pointer = parent
    while (pointer >= 0).any():
        above = np.maximum(pointer, 0)
        depth += np.where(pointer >= 0, depth[above], 0).astype(np.int32)
        pointer = np.where(pointer >= 0, pointer[above], -1)
    return depth


def first_reaching(parent: I32, reach: I64, rows: I32, wanted: I64) -> I32:
    """Returns, for each of `rows`, the first row whose `reach` is at least the value in `wanted`:
    the row itself or its nearest ancestor with such a value. -1 if there is none.

    The reach of a parent must not be less than that of its child. The end times of events are an
    example: a parent ends at or after the end of its child. So the ancestors can be searched by
    jumps of powers of two, the largest first.

    Args:
        parent: For each row of the table, the row of its parent, or -1.
        reach: A value for each row of the table.
        rows: The rows to start from; -1 stays -1.
        wanted: For each of `rows`, the value to reach.
    """
    result = rows.copy()
    climbing = np.flatnonzero((rows >= 0) & (reach[np.maximum(rows, 0)] < wanted)) if len(reach) else rows[:0]
    if not len(climbing):
        return result
    current, goal = rows[climbing], wanted[climbing]
    jumps = [_with_end(parent)]
    while (jumps[-1] >= 0).any():
        jumps.append(jumps[-1][jumps[-1]])
    for jump in reversed(jumps[:-1]):
        above = jump[current]
        current = np.where((above >= 0) & (reach[above] < goal), above, current)
    result[climbing] = parent[current]
    return result


def sums_below(parent: I32, values: I64) -> I64:
    """Returns, for each row, the sum of its own value and the values of all its descendants.
    `parent` has, for each row, the row of its parent, or -1.
    """
    sums = values.copy()
    depth = depths(parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depth == level)
        np.add.at(sums, parent[rows], sums[rows])
    return sums


def _settle(pointer: I32) -> I32:
    """Follows pointers from row to row until they no longer change. Returns, for each row, the last
    row that it leads to; -1 stays -1.
    """
    here = _with_end(pointer)
    while (here != (onward := here[here])).any():
        here = onward
    return here[:-1].astype(np.int32)


def _with_end(pointer: I32) -> I64:
    """Returns pointers that can be followed by indexing: -1 is the index of the last, which points to itself."""
    column = np.full(len(pointer) + 1, -1, dtype=np.int64)
    column[:-1] = pointer
    return column
