"""Finds ancestors of rows in a column `parent`. Such columns link host events to enclosing events,
and frames to calling frames.

Loops in which a row's result depends on an earlier row's are in C (`_rows.c`), with a twin here for where it was not
built. The other functions are vectorised by pointer doubling, and need log(depth) rounds.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool

try:
    from unstall.timeline import _rows
except ImportError:
    _rows = None  # type: ignore[assignment]  # built only if there is a C compiler


def enclosing(thread: I32, start: I64, end: I64) -> I32:
    """Returns, for each event, the innermost event that encloses it, or -1. Events are sorted by (thread, start, -end).

    Because times are rounded, an event may end after the event in which it began. It then counts as ending with that
    event. An event of zero duration is open at the time of its start.
    """
    parent = np.full(len(thread), -1, dtype=np.int32)
    if _rows is not None:
        _rows.enclosing(thread, start, end, parent)
        return parent
    ends = np.maximum(end, start).tolist()
    begins, threads, around = start.tolist(), thread.tolist(), parent.tolist()
    for row in range(1, len(around)):
        outer = row - 1 if threads[row] == threads[row - 1] else -1
        while outer >= 0 and ends[outer] <= begins[row] and begins[outer] < begins[row]:
            outer = around[outer]
        around[row] = outer
        if outer >= 0:
            ends[row] = max(min(ends[row], ends[outer]), begins[row])
    parent[:] = around
    return parent


def open_at(rows: I64, start: I64, end: I64) -> tuple[I64, I64]:
    """Returns `(time, row)`: from time[i] to time[i + 1], row[i] is the open event that began last, or -1 if none is
    open. The times ascend.

    Args:
        rows: The rows of the events, by ascending start. If several begin at once, the last of them counts as the last.
        start: The start of each row of the table, in ns.
        end: The end of each row of the table, in ns. It is later than the start.
    """
    begins, ends = start[rows], end[rows]
    if _rows is not None:
        time, owner = np.empty(2 * len(rows), dtype=np.int64), np.empty(2 * len(rows), dtype=np.int64)
        count = _rows.open_at(rows, begins, ends, time, owner)
        return time[:count], owner[:count]
    changes: dict[int, int] = {}  # of several at one time, the last counts
    open_: list[tuple[int, int]] = []  # end and row, by start; some may have ended

    def go_on_to(now: float) -> None:
        while open_ and open_[-1][0] <= now:
            ended, _ = open_.pop()
            while open_ and open_[-1][0] <= ended:
                open_.pop()
            changes[ended] = open_[-1][1] if open_ else -1

    for row, began, ended in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True):
        go_on_to(began)
        open_.append((ended, row))
        changes[began] = row
    go_on_to(np.inf)
    return np.array(list(changes), dtype=np.int64), np.array(list(changes.values()), dtype=np.int64)


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
    if _rows is not None and _rows.settle(
        np.ascontiguousarray(pointer), result := np.empty(len(pointer), dtype=np.int32)
    ):
        return result
    here = _with_end(pointer)
    while (here != (onward := here[here])).any():
        here = onward
    return here[:-1].astype(np.int32)


def _with_end(pointer: I32) -> I64:
    """Returns pointers that can be followed by indexing: -1 is the index of the last, which points to itself."""
    column = np.full(len(pointer) + 1, -1, dtype=np.int64)
    column[:-1] = pointer
    return column
