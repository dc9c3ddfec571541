"""A spanning forest of a job's clocks, and least squares along it. Two clocks are connected if they measured the same
operation.

The offsets and slopes of the clocks are found by conjugate gradients. They are preconditioned by an elimination along
the forest (as by Vaidya, 1991). It is exact if the clocks are connected in a chain or a tree, and groups of ranks that
share their operations need few iterations. So the time grows with the number of ends, not with its square.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.timeline.columns import I64
from unstall.timeline.grouping import ranges, unique

_LEAST_WEIGHT = 1e-3  # in the preconditioner: an edge of no weight would leave a clock without a place
_PRECISION = 1e-18  # of the squared error

_Reals = NDArray[np.float64]


class Ends(msgspec.Struct, frozen=True, eq=False):
    """The ends of operations: one value for each.

    Attributes:
        operation: The number of the operation, in ascending order from 0 on without gaps.
        clock: The index of the clock that measured the end.
        clocks: The number of clocks.
    """

    operation: I64
    clock: I64
    clocks: int

    @property
    def operations(self) -> int:
        """The number of operations."""
        return int(self.operation[-1]) + 1

    def of_operations(self, values: _Reals) -> _Reals:
        """Returns the sum of the values of each operation's ends."""
        return np.bincount(self.operation, values, self.operations).astype(np.float64, copy=False)

    def of_clocks(self, values: _Reals) -> _Reals:
        """Returns the sum of the values of each clock's ends."""
        return np.bincount(self.clock, values, self.clocks).astype(np.float64, copy=False)

    def centred(self, values: _Reals, weight: _Reals) -> _Reals:
        """Returns the values less the weighted mean of their operation."""
        mean = self.of_operations(values * weight) / np.maximum(self.of_operations(weight), 1e-12)
        return values - mean[self.operation]


class Forest(msgspec.Struct, frozen=True, eq=False):
    """A spanning forest of clocks: one tree for each part of the job that operations connect.

    Attributes:
        parent: For each clock, its parent in the tree. -1 for a root.
        part: For each clock, the number of its tree.
        levels: The clocks at each depth. The roots come first.
        end: An end of each operation that a clock shares with its parent, as an index into the ends.
        end_of_parent: The parent's end of the same operation.
    """

    parent: I64
    part: I64
    levels: tuple[I64, ...]
    end: I64
    end_of_parent: I64

    @classmethod
    def of(cls, ends: Ends) -> Forest:
        """Finds the forest by breadth-first search. Each tree begins at its clock with most ends."""
        operation, clock, clocks = ends.operation, ends.clock, ends.clocks
        by_clock = np.argsort(clock, kind="stable")
        of_clock = np.append(0, np.cumsum(np.bincount(clock, minlength=clocks)))
        of_operation = np.append(0, np.cumsum(np.bincount(operation)))
        parent, part, depth = (np.full(clocks, -1, dtype=np.int64) for _ in range(3))
        via = np.full(len(of_operation) - 1, -1, dtype=np.int64)  # the clock through which an operation was reached
        number = 0
        for root in np.argsort(-np.diff(of_clock), kind="stable").tolist():
            if part[root] >= 0:
                continue
            part[root], level, reached = number, 0, np.array([root], dtype=np.int64)
            while len(reached):
                depth[reached] = level
                rows: I64 = by_clock[_rows(of_clock, reached)]
                rows = rows[via[operation[rows]] < 0]
                via[operation[rows]] = clock[rows]
                rows = _rows(of_operation, unique(operation[rows]))
                rows = rows[part[clock[rows]] < 0]
                parent[clock[rows]], part[clock[rows]] = via[operation[rows]], number
                reached = unique(clock[rows])
                level += 1
            number += 1
        order = np.argsort(depth, kind="stable")
        levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])
        key = operation * clocks + clock
        sorting = np.argsort(key, kind="stable")
        mine = np.flatnonzero(parent[clock] >= 0)
        wanted = operation[mine] * clocks + parent[clock[mine]]
        at = np.minimum(np.searchsorted(key, wanted, sorter=sorting), len(key) - 1)
        shared = key[sorting[at]] == wanted
        return cls(parent, part, tuple(levels), mine[shared], sorting[at[shared]])

    def offsets(self, ends: Ends, time: I64) -> I64:
        """Returns a rough offset of each clock against the root of its tree, in ns: the sum of the median differences
        along the tree.

        Args:
            ends: The ends of operations.
            time: For each end, its time on its clock, in ns.
        """
        offset = np.zeros(ends.clocks, dtype=np.int64)
        child, apart = ends.clock[self.end], time[self.end] - time[self.end_of_parent]
        order = np.lexsort((apart, child))
        several = np.bincount(child, minlength=ends.clocks)
        middle = np.cumsum(several) - several + (several - 1) // 2
        for level in self.levels[1:]:
            offset[level] = offset[self.parent[level]] + apart[order[middle[level]]]
        return offset


def _rows(first: I64, chosen: I64) -> I64:
    """Returns the numbers from first[i] to first[i + 1] - 1 for each i in `chosen`."""
    return ranges(first[chosen], first[chosen + 1] - first[chosen])


class _Elimination:
    """The equations of the operations that clocks share with their parents in a forest. The other operations are left
    out. They are solved from the leaves to the roots and back."""

    def __init__(self, ends: Ends, forest: Forest, u: _Reals, weight: _Reals, ridge: _Reals) -> None:
        child, at = ends.clock[forest.end], u[forest.end]
        several = np.bincount(ends.operation)[ends.operation[forest.end]]
        each = weight[forest.end] * weight[forest.end_of_parent]
        each /= np.maximum(ends.of_operations(weight), 1e-12)[ends.operation[forest.end]]
        each += _LEAST_WEIGHT / several
        block = np.stack([np.bincount(child, each * power, ends.clocks) for power in (1, at, at**2)]).astype(np.float64)
        own = block.copy()
        own[2] += ridge
        # Only differences between clocks are known, so each root is given a place.
        own[0::2, forest.levels[0]] += 1
        self._levels = []
        for level in reversed(forest.levels):
            edge, whole = block[:, level], own[:, level]
            inverse = _inverse(whole)
            parent = forest.parent[level]
            self._levels.append((level, parent, edge, inverse))
            if parent[0] >= 0:
                np.add.at(own.T, parent, (edge - _between(edge, inverse)).T)

    def solved(self, right: _Reals) -> _Reals:
        """Returns the solution of shape (2, clocks) for a right side of this shape."""
        right = right.copy()
        x = np.zeros_like(right)
        for level, parent, edge, inverse in self._levels:
            x[:, level] = _times(inverse, right[:, level])
            if parent[0] >= 0:
                np.add.at(right.T, parent, _times(edge, x[:, level]).T)
        for level, parent, edge, inverse in reversed(self._levels):
            if parent[0] >= 0:
                x[:, level] += _times(inverse, _times(edge, x[:, parent]))
        return x


def _inverse(block: _Reals) -> _Reals:
    one, both, two = block
    inverse: _Reals = np.stack([two, -both, one]) / np.maximum(one * two - both**2, 1e-300)
    return inverse


def _times(block: _Reals, vector: _Reals) -> _Reals:
    one, both, two = block
    product: _Reals = np.stack([one * vector[0] + both * vector[1], both * vector[0] + two * vector[1]])
    return product


def _between(edge: _Reals, inverse: _Reals) -> _Reals:
    """Returns edge * inverse * edge. All are symmetric matrices, and so is the product."""
    first, second = _times(edge, _times(inverse, edge[:2])), _times(edge, _times(inverse, edge[1:]))
    product: _Reals = np.stack([first[0], first[1], second[1]])
    return product


def solve(
    ends: Ends, forest: Forest, u: _Reals, y: _Reals, weight: _Reals, ridge: _Reals, start: _Reals | None = None
) -> _Reals:
    """Solves a weighted least-squares problem: y = time of the operation + offset of the clock + slope of the clock *
    u. The times of the operations are eliminated.

    Returns an array of shape (2, clocks): the offsets and the slopes. The mean of each over a tree of the forest is 0,
    because only differences between clocks are known.

    Args:
        ends: The ends of operations.
        forest: The spanning forest of the clocks.
        u: For each end, the time of its operation in any unit.
        y: For each end, the time to be explained.
        weight: The weight of each end.
        ridge: For each clock, what is added to the sum of squares for a slope of 1. It must be positive.
        start: A first guess of the result. It saves iterations.
    """

    def transposed(values: _Reals) -> _Reals:
        weighted = weight * ends.centred(values, weight)
        return np.stack([ends.of_clocks(weighted), ends.of_clocks(weighted * u)])

    def applied(x: _Reals) -> _Reals:
        image = transposed(x[0][ends.clock] + x[1][ends.clock] * u)
        image[1] += ridge * x[1]
        return image

    near = _Elimination(ends, forest, u, weight, ridge)
    right = transposed(y)
    least = _PRECISION * float((right * near.solved(right)).sum())
    x = np.zeros_like(right) if start is None else start
    left = right - applied(x) if start is not None else right
    step = better = near.solved(left)
    size = float((left * better).sum())
    for _ in range(4 * ends.clocks + 16):
        if size <= least:
            break
        image = applied(step)
        curve = float((step * image).sum())
        if curve <= 0:
            break
        x = x + size / curve * step
        left = left - size / curve * image
        better = near.solved(left)
        before, size = size, float((left * better).sum())
        step = better + size / before * step
    count = np.bincount(forest.part)
    return np.stack([each - (np.bincount(forest.part, each) / count)[forest.part] for each in x])
