"""Groups the rows of a column by value, with one sort or one lookup table, instead of one mask for each value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unstall.timeline.columns import I8, I32, I64, Bool

try:
    from unstall.timeline import _rows
except ImportError:
    _rows = None  # type: ignore[assignment]  # built only if there is a C compiler

_Column = TypeVar("_Column", I32, I64)
_SPARSE, _SMALL = 4, 1 << 14  # a table up to this much larger than the column is faster than sorting


def groups(values: I64 | I32) -> Iterator[tuple[int, I64]]:
    """Yields `(value, rows)` for each distinct value, in ascending order of the values.

    `rows` are the indices at which `values` has this value, in ascending order.
    """
    order = np.empty(len(values), dtype=np.int64)
    if _rows is not None and (found := _rows.grouped(values, order)) is not None:
        for value, begin, end in found:
            yield value, order[begin:end]
        return
    order = values.argsort(kind="stable")
    ordered = values[order]
    bounds = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist(), len(order)]
    for begin, end in pairwise(bounds):
        if end > begin:
            yield int(ordered[begin]), order[begin:end]


def members(sorted_values: I64 | I32, wanted: I64 | I32) -> I64:
    """Returns the positions in `sorted_values` at which a value of `wanted` stands.

    All positions of the first value in `wanted` come first, then those of the second, and so on.
    """
    first = np.searchsorted(sorted_values, wanted, side="left")
    count = np.searchsorted(sorted_values, wanted, side="right") - first
    return ranges(first, count)


def ranges(first: I64, count: I64) -> I64:
    """Returns the numbers from first[i] to first[i] + count[i] - 1 for each i, one range after the other."""
    numbers: I64 = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
    return numbers


def unique(values: _Column) -> _Column:
    """Returns the distinct values, ascending, in the type of the column.

    `np.unique` does the same. But its first call imports `numpy.ma`, and each takes longer than a sort of few values.
    """
    ordered = values.copy()
    ordered.sort()
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    kept: _Column = ordered[first]
    return kept


def is_in(values: I64 | I32, wanted: I64 | I32) -> Bool:
    """Returns a mask of the values that are in `wanted`, like `np.isin`, which may call `np.unique`."""
    ordered = wanted.copy()
    ordered.sort()
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    found: Bool = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def is_one_of(codes: I8 | I32 | I64, chosen: Sequence[int]) -> Bool:
    """Returns a mask of the codes that are in `chosen`. For few of them, this is faster than `np.isin`."""
    found = np.zeros(codes.shape, dtype=np.bool_)
    for each in chosen:
        found |= codes == each
    return found


def median(values: ArrayLike, axis: int = 0) -> NDArray[np.float64]:
    """Returns the medians along an axis, like `np.median`, whose first call imports `numpy.ma`."""
    ordered = np.sort(values, axis=axis)
    count = ordered.shape[axis]
    middle: NDArray[np.float64] = (ordered.take((count - 1) // 2, axis) + ordered.take(count // 2, axis)) / 2
    return middle


def distinct(values: I64 | I32) -> tuple[I64, I64]:
    """Returns `(found, index)`, like `np.unique` with `return_inverse`.

    `found` has the distinct values, ascending. `index` has, for each element of `values`, its index
    in `found`.
    """
    if not len(values):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    index = np.empty(len(values), dtype=np.int64)
    if _rows is not None and (known := _rows.distinct(values, index)) is not None:
        return np.frombuffer(known, dtype=np.int64), index
    low, high = int(values.min()), int(values.max())
    if high - low > _SPARSE * len(values) + _SMALL:
        found, which = np.unique(values, return_inverse=True)
        return found.astype(np.int64), which.astype(np.int64)
    present = np.zeros(high - low + 1, dtype=np.bool_)
    offset = values - low
    present[offset] = True
    found = present.nonzero()[0]
    number = np.empty(len(present), dtype=np.int64)
    number[found] = np.arange(len(found))
    return found + low, number[offset]


def order_of(numbers: I64 | I32, most: int) -> I64:
    """Returns the stable order of numbers from 0 to `most`. If `most` is small, this is faster than `argsort` of the
    column: numpy sorts narrow types by radix.
    """
    order: I64 = numbers.astype(np.min_scalar_type(most)).argsort(kind="stable")
    return order


def by_text(texts: I32, meaning: Callable[[int], int]) -> I64:
    """Returns `meaning(index)` for each element of `texts`, which are indices of texts. Each
    distinct index is asked for only once.
    """
    indices, which = distinct(texts)
    return np.array([meaning(index) for index in indices.tolist()], dtype=np.int64)[which]


def components(count: int, one: I64, other: I64) -> I64:
    """Returns, for each of the numbers from 0 to `count` - 1, the least number to which pairs connect it, be it through
    others. `one` and `other` have the numbers of each pair."""
    numbers = np.arange(count)
    root = numbers
    while len(one):
        # Each root with a neighbour joins its least one, so each round leaves at most half of these roots.
        to = np.full(count, count)
        np.minimum.at(to, one, other)
        np.minimum.at(to, other, one)
        to = np.where(to < count, to, numbers)
        to = np.where((to[to] == numbers) & (numbers < to), numbers, to)  # two that chose each other; no longer rings
        while (to != (onward := to[to])).any():
            to = onward
        root, one, other = to[root], to[one], to[other]
        apart = one != other
        one, other = one[apart], other[apart]
    least = np.full(count, count)
    np.minimum.at(least, root, numbers)
    found: I64 = least[root]
    return found


def union(start: I64, end: I64) -> tuple[I64, I64]:
    """Returns `(starts, ends)` of the union of the given intervals: intervals that do not overlap,
    in ascending order.
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.append(True, start[1:] > end[:-1])[: len(start)]
    return start[first], end[np.append(first[1:], True)[: len(start)]]
