"""Finds ancestors of rows in a `parent` column, such as those of host events and stacks.

The functions are vectorised by pointer doubling, and need log(depth) rounds.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool


def nearest(parent: I32, chosen: Bool) -> I32:
    """Returns, for each row, the nearest chosen row: the row itself or its nearest chosen ancestor.

    The result is -1 if neither the row nor an ancestor is chosen.
    """
    rows = np.arange(len(parent), dtype=np.int32)
    return _settle(np.where(chosen, rows, parent))


def outermost(parent: I32, chosen: Bool, barrier: Bool) -> I32:
    """Searches outwards from each row up to a barrier. Returns the outermost chosen row that each search finds.

    A search begins with the row itself, continues with its ancestors, and ends before the first barrier. The result is
    -1 if the search finds no chosen row. A row that is both chosen and a barrier counts as chosen.
    """
    marked = nearest(parent, chosen | barrier)
    above = np.where(parent >= 0, marked[parent], -1) if len(parent) else parent
    rows = np.arange(len(parent), dtype=np.int32)
    goes_on = (above >= 0) & chosen & chosen[np.maximum(above, 0)]
    top = _settle(np.where(goes_on, above, rows).astype(np.int32))
    ends_in_chosen = (marked >= 0) & chosen[np.maximum(marked, 0)]
    return np.where(ends_in_chosen, top[np.maximum(marked, 0)], -1).astype(np.int32)


def depths(parent: I32) -> I32:
    """Returns the number of ancestors of each row."""
    depth = (parent >= 0).astype(np.int32)
    pointer = parent
    while (pointer >= 0).any():
        above = np.maximum(pointer, 0)
        depth += np.where(pointer >= 0, depth[above], 0).astype(np.int32)
        pointer = np.where(pointer >= 0, pointer[above], -1)
    return depth


def first_reaching(parent: I32, reach: I64, rows: I32, wanted: I64) -> I32:
    """Returns, for each of `rows`, the first row whose `reach` is at least `wanted`: the row itself or an ancestor.

    The result is -1 if there is no such row. `reach` must not decrease from child to parent. For example, ends of
    events do not decrease: a parent ends at or after the end of its child. So the ancestors can be searched by binary
    search, with jumps by powers of two, the largest first.
    """
    result = rows.copy()
    climbing = np.flatnonzero((rows >= 0) & (reach[np.maximum(rows, 0)] < wanted)) if len(reach) else rows[:0]
    if not len(climbing):
        return result
    current, goal = rows[climbing], wanted[climbing]
    jumps = [parent]
    while (jumps[-1] >= 0).any():
        last = jumps[-1]
        jumps.append(np.where(last >= 0, last[np.maximum(last, 0)], -1).astype(np.int32))
    for jump in reversed(jumps):
        above = jump[current]
        current = np.where((above >= 0) & (reach[np.maximum(above, 0)] < goal), above, current)
    result[climbing] = parent[current]
    return result


def sums_below(parent: I32, values: I64) -> I64:
    """Returns, for each row, the sum of its own value and the values of all its descendants."""
    sums = values.copy()
    depth = depths(parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depth == level)
        np.add.at(sums, parent[rows], sums[rows])
    return sums


def _settle(pointer: I32) -> I32:
    """Follows the pointers from each row to the last row of its chain.

    Returns the last row for each row; -1 stays -1.
    """
    while True:
        onward = np.append(pointer, np.int32(-1))[pointer]  # index -1 is the last element
        if np.array_equal(onward, pointer):
            return pointer.astype(np.int32)
        pointer = onward
