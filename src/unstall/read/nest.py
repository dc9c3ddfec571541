"""Finds, for each host event, the event of its thread that encloses it. Handles all events of all
threads at once, by operations on arrays.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.ancestry import first_reaching
from unstall.timeline.columns import I8, I32, I64, HostKind
from unstall.timeline.grouping import order_of

_CLIP_ROUNDS = 3  # for children that end after their parent by a rounded microsecond, and for their children


def find_parents(kind: I8, thread: I32, start: I64, end: I64) -> I32:
    """Returns, for each row of `timeline.host`, the innermost row that encloses it, or -1. Rows
    must be sorted by (thread, start, -end).

    Operators, calls and Python frames nest. An annotation does not nest with frames: it begins
    inside the frame of its `__enter__` and ends inside the frame of its `__exit__`. So annotations
    are put in last. An annotation becomes the parent of a row if it encloses the row and lies
    within the row's parent so far.

    Args:
        kind: The HostKind of each row.
        thread: The thread of each row.
        start: The start of each row, in ns.
        end: The end of each row, in ns.
    """
    is_span = kind == HostKind.ANNOTATION
    solid, spans = np.flatnonzero(~is_span), np.flatnonzero(is_span)
    parent = np.full(len(kind), -1, dtype=np.int32)
    parent[solid] = _rows(solid, _nest(thread[solid], start[solid], end[solid]))
    if not len(spans):
        return parent
    span_parent = np.full(len(kind), -1, dtype=np.int32)
    span_parent[spans] = _rows(spans, _nest(thread[spans], start[spans], end[spans]))
    parent[spans] = first_reaching(parent, end, _previous(solid, spans, thread), end[spans])
    around = np.full(len(kind), -1, dtype=np.int32)
    around[solid] = first_reaching(span_parent, end, _previous(spans, solid, thread), end[solid])
    around[spans] = span_parent[spans]

    span, outer = np.maximum(around, 0), np.maximum(parent, 0)
    within = (parent < 0) | ((start[span] >= start[outer]) & (end[span] <= end[outer]))
    return np.where((around >= 0) & within, around, parent).astype(np.int32)


def _rows(chosen: I64, parent: I32) -> I32:
    """Replaces each index into `chosen` in `parent` by the row `chosen[index]`. -1 stays -1."""
    if not len(chosen):
        return parent
    return np.where(parent >= 0, chosen[np.maximum(parent, 0)], -1).astype(np.int32)


def _previous(chosen: I64, rows: I64, thread: I32) -> I32:
    """Returns, for each row in `rows`, the last row in `chosen` before it on the same thread, or -1."""
    if not len(chosen):
        return np.full(len(rows), -1, dtype=np.int32)
    at = np.searchsorted(chosen, rows) - 1
    found = chosen[np.maximum(at, 0)]
    return np.where((at >= 0) & (thread[found] == thread[rows]), found, -1).astype(np.int32)


def _nest(thread: I32, start: I64, end: I64) -> I32:
    """Returns, for each event, the innermost event that encloses it, or -1. Events are sorted by
    (thread, start, -end).

    Because times are rounded, an event may end after the event in which it began. It then counts as
    ending with that event.
    """
    end = np.maximum(end, start)
    for _ in range(_CLIP_ROUNDS):
        parent = _enclosing(_depths(thread, start, end))
        outer = end[np.maximum(parent, 0)]
        crossing = (parent >= 0) & (end > outer)
        if not crossing.any():
            break
        end = np.where(crossing, np.maximum(outer, start), end)
    return parent


def _enclosing(depth: I32) -> I32:
    """Returns, for each row, the row that encloses it, or -1 at depth 0. `depth` has for each row
    the number of rows that enclose it.

    The enclosing row is the last earlier row whose depth is smaller by 1.
    """
    size = len(depth)
    rows = order_of(depth, int(depth.max(initial=0)))
    keys = depth[rows].astype(np.int64) * size + rows
    found = np.searchsorted(keys, keys - size) - 1
    parent = np.full(size, -1, dtype=np.int32)
    parent[rows] = np.where(depth[rows] > 0, rows[np.maximum(found, 0)], -1)
    return parent


def _depths(thread: I32, start: I64, end: I64) -> I32:
    """Returns the depth of each row: the number of earlier rows of the same thread that have not ended when the row
    starts.

    An event of zero duration counts as half a ns long. Otherwise, the event would count as ended when it starts.
    """
    depth = np.zeros(len(start), dtype=np.int32)
    cuts = np.flatnonzero(np.diff(thread)) + 1
    for low, high in zip((0, *cuts), (*cuts, len(start)), strict=True):
        ends = np.maximum(2 * end[low:high], 2 * start[low:high] + 1)
        ends.sort(kind="stable")  # nearly in order
        closed = np.searchsorted(ends, 2 * start[low:high], side="right")
        depth[low:high] = np.arange(high - low) - closed
    return depth
