"""Sets of time intervals: their unions, their complements, and how much of a window they cover,
vectorised and exact.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I64, Table


class Intervals(Table, frozen=True, eq=False):
    """A set of times in ns, as half-open intervals [start, end). They do not overlap, none is
    empty, and they are in ascending order.
    """

    start: I64
    end: I64

    @classmethod
    def union(cls, start: I64, end: I64) -> Intervals:
        """Returns the union of the given intervals. Empty intervals are dropped. Intervals that
        overlap or touch become one.
        """
        real = end > start
        start, end = start[real], end[real]
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        reach = np.maximum.accumulate(end)
        opens = np.ones(len(start), dtype=np.bool_)
        opens[1:] = start[1:] > reach[:-1]
        first = np.flatnonzero(opens)
        last = np.append(first[1:], len(start)) - 1
        return cls(start[first], reach[last] if len(first) else reach)

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.union(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def clip(self, low: int, high: int) -> Intervals:
        """Returns the part of the set within [low, high)."""
        return Intervals.union(np.clip(self.start, low, high), np.clip(self.end, low, high))

    def gaps(self, low: int, high: int) -> Intervals:
        """Returns the part of [low, high) that the set does not cover."""
        inside = self.clip(low, high)
        return Intervals.union(np.append(low, inside.end), np.append(inside.start, high))

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(self):
            return self
        holes = other.gaps(int(self.start[0]), int(self.end[-1]))
        return self & holes

    def __and__(self, other: Intervals) -> Intervals:
        if not (len(self) and len(other)):
            return Intervals.none()
        first = np.searchsorted(other.end, self.start, side="right")
        beyond = np.searchsorted(other.start, self.end, side="left")
        count = np.maximum(beyond - first, 0)
        mine = np.repeat(np.arange(len(self)), count)
        theirs = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        theirs += np.repeat(first, count)
        return Intervals(
            np.maximum(self.start[mine], other.start[theirs]),
            np.minimum(self.end[mine], other.end[theirs]),
        )

    def longer_than(self, least: int) -> Intervals:
        """Returns those of the intervals that are at least `least` ns long."""
        chosen = self.end - self.start >= least
        return Intervals(self.start[chosen], self.end[chosen])

    @property
    def total(self) -> int:
        """The sum of the lengths of all intervals, in ns."""
        return int((self.end - self.start).sum())

    def covered(self, low: I64, high: I64) -> I64:
        """Returns, for each window [low, high), how many ns of it the set covers. It is 0 if `high`
        is not after `low`.
        """
        return np.where(high > low, self._until(high) - self._until(low), 0)

    def _until(self, time: I64) -> I64:
        """Returns, for each time, how many ns of the set lie before it."""
        if not len(self):
            return np.zeros(len(time), dtype=np.int64)
        whole = np.append(0, np.cumsum(self.end - self.start))
        index = np.searchsorted(self.start, time, side="right")
        last = np.maximum(index - 1, 0)
        return np.where(index > 0, whole[last] + np.minimum(time, self.end[last]) - self.start[last], 0)
