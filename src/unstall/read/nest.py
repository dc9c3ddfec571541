"""Finds, for each host event, the event of its thread that encloses it."""

from __future__ import annotations

import numpy as np

from unstall.timeline.ancestry import enclosing, first_reaching
from unstall.timeline.columns import I8, I32, I64, HostKind


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
    parent[solid] = _rows(solid, enclosing(thread[solid], start[solid], end[solid]))
    if not len(spans):
        return parent
    span_parent = np.full(len(kind), -1, dtype=np.int32)
    span_parent[spans] = _rows(spans, enclosing(thread[spans], start[spans], end[spans]))
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
