"""Compresses arrays of integers. Equal values, close values and evenly spaced values take few bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SMALL = (np.uint8, np.uint16, np.uint32)


class Packed:
    """A compressed array of integers, or of structs of integers. Each field of a struct is
    compressed by itself. `rows` returns the original array.
    """

    __slots__ = ("_columns", "_dtype", "_length")

    def __init__(self, rows: np.ndarray) -> None:
        self._dtype, self._length = rows.dtype, len(rows)
        names = rows.dtype.names
        self._columns = [_packed(rows[name]) for name in names] if names else [_packed(rows)]

    def __len__(self) -> int:
        return self._length

    def rows(self) -> np.ndarray:
        """Returns the original array."""
        rows = np.empty(self._length, self._dtype)
        fields = [rows[name] for name in self._dtype.names] if self._dtype.names else [rows]
        for field, column in zip(fields, self._columns, strict=True):
            field[:] = column.values(self._length)
        return rows


@dataclass(frozen=True, slots=True)
class _Column:
    """A compressed array of integers. What is stored are either the values themselves, or the
    differences of neighbouring values.

    Attributes:
        first: The first value if differences are stored, otherwise 0.
        steps: Whether differences are stored.
        least: The least of the stored numbers.
        above: Each stored number minus `least`. None if all stored numbers are equal.
    """

    first: int
    steps: bool
    least: int
    above: np.ndarray | None

    def values(self, length: int) -> np.ndarray:
        count = length - self.steps
        if self.above is None:
            found = np.full(count, self.least, np.int64)
        else:
            found = self.above.astype(np.int64)
            found += self.least
        return np.cumsum(np.concatenate(([self.first], found))) if self.steps else found


def _packed(values: np.ndarray) -> _Column:
    """Compresses an array of integers of up to 64 bits. Stores the differences of neighbouring
    values if they take fewer bytes than the values, and the values if not.
    """
    if not len(values):
        return _Column(0, False, 0, None)
    wide = values.astype(np.int64)
    plain = _Column(0, False, *_above_least(wide))
    if plain.above is None or int(wide.max()) - int(wide.min()) >= 1 << 62:  # steps could overflow
        return plain
    steps = _Column(int(wide[0]), True, *_above_least(np.diff(wide)))
    return steps if _bytes(steps) < _bytes(plain) else plain


def _above_least(values: np.ndarray) -> tuple[int, np.ndarray | None]:
    """Returns `(least, above)`. `least` is the least value. `above` has each value minus `least`,
    in the smallest dtype that can hold them all; it is None if all values are equal.

    Differences that need more than 32 bits are not made: then `least` is 0, and `above` is
    `values`.
    """
    if not len(values):
        return 0, None
    least, most = int(values.min()), int(values.max())
    if least == most:
        return least, None
    small = next((dtype for dtype in _SMALL if most - least <= np.iinfo(dtype).max), None)
    return (least, (values - least).astype(small)) if small else (0, values)


def _bytes(column: _Column) -> int:
    return 0 if column.above is None else column.above.nbytes
