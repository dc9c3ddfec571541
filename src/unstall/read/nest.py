"""Who encloses whom: nesting of intervals, vectorised over all events of all threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.timeline import I32, I64

_CLIP_ROUNDS = 3  # children that outlive their parent by a rounding microsecond, and their children


class Nesting:
    """Parents of rows sorted by (thread, start, -end), and walks down from the roots.

    An event encloses the later rows of its thread that start before it ends. Where a child outlives its
    parent (clocks of one microsecond; spans that do not nest), it counts as ending with it.
    """

    __slots__ = ("_bounds", "_by_depth", "depth", "parent")

    def __init__(self, thread: I32, start: I64, end: I64) -> None:
        end = np.maximum(end, start)
        for _ in range(_CLIP_ROUNDS):
            self.depth = _depths(thread, start, end)
            self._by_depth = np.argsort(self.depth, kind="stable").astype(np.int32)
            self.parent = self._parents()
            outer = end[np.maximum(self.parent, 0)]
            crossing = (self.parent >= 0) & (end > outer)
            if not crossing.any():
                break
            end = np.where(crossing, np.maximum(outer, start), end)
        deepest = int(self.depth.max(initial=0))
        self._bounds = np.searchsorted(self.depth[self._by_depth], np.arange(deepest + 2))

    def _parents(self) -> I32:
        size = len(self.depth)
        rows = self._by_depth.astype(np.int64)
        keys = self.depth[rows].astype(np.int64) * size + rows
        own = np.arange(size, dtype=np.int64)
        wanted = (self.depth.astype(np.int64) - 1) * size + own
        found = np.searchsorted(keys, wanted) - 1
        return np.where(self.depth > 0, rows[np.maximum(found, 0)], -1).astype(np.int32)

    def levels(self) -> Iterator[I32]:
        """Rows level by level, callers before what they call."""
        for low, high in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            yield self._by_depth[low:high]


def _depths(thread: I32, start: I64, end: I64) -> I32:
    """How many earlier rows of the same thread are still open when each row starts.

    Times are doubled, so that an event of no duration can be told from one that has ended.
    """
    depth = np.zeros(len(start), dtype=np.int32)
    cuts = np.flatnonzero(np.diff(thread)) + 1
    for low, high in zip((0, *cuts), (*cuts, len(start)), strict=True):
        ends = np.maximum(2 * end[low:high], 2 * start[low:high] + 1)
        ends.sort()
        closed = np.searchsorted(ends, 2 * start[low:high], side="right")
        depth[low:high] = np.arange(high - low) - closed
    return depth
