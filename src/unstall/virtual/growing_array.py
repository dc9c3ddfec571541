"""An array that is cheap to append to. It suits data that is rarely read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from unstall.virtual.packed import Packed

_MOST_LOOSE = 256
_ENOUGH_ROWS = 1 << 15


class GrowingArray:
    """An array of rows to which rows can be appended. It stores its rows in parts.

    Large parts are compressed, so that rows that resemble their neighbours need less memory. Small
    parts are joined from time to time, because each part takes some hundred bytes of its own.

    Attributes:
        length: The number of rows.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.length = 0
        self._dtype = np.dtype(dtype)
        self._packed: list[Packed] = []
        self._joined: list[np.ndarray] = []
        self._loose: list[np.ndarray] = []
        self._unpacked_rows = 0

    def append(self, rows: np.ndarray) -> None:
        """Appends a copy of `rows`, converted to the dtype of this array."""
        self._loose.append(rows.astype(self._dtype))
        self._unpacked_rows += len(rows)
        self.length += len(rows)
        if self._unpacked_rows >= _ENOUGH_ROWS:
            self._packed.append(Packed(np.concatenate([*self._joined, *self._loose])))
            self._joined, self._loose, self._unpacked_rows = [], [], 0
        elif len(self._loose) == _MOST_LOOSE:
            self._joined.append(np.concatenate(self._loose))
            self._loose = []

    def whole(self) -> np.ndarray:
        """Returns all rows as one new array."""
        whole = np.empty(self.length, self._dtype)
        end = self.length
        for length, part in self._backwards():
            end -= length
            whole[end : end + length] = part if isinstance(part, np.ndarray) else part.rows()
        return whole

    def since(self, row: int) -> np.ndarray:
        """Returns the rows from index `row` on, as a new array. Decompresses only the parts that contain them."""
        taken: list[np.ndarray] = []
        first = self.length
        for length, part in self._backwards():
            if first <= row:
                break
            first -= length
            taken.append((part if isinstance(part, np.ndarray) else part.rows())[max(row - first, 0) :])
        return np.concatenate([np.zeros(0, self._dtype), *reversed(taken)])

    def _backwards(self) -> Iterator[tuple[int, np.ndarray | Packed]]:
        """Yields `(length, rows)` for each part, from the last part to the first. `rows` is
        compressed for a large part.
        """
        for parts in (self._loose, self._joined, self._packed):
            for part in reversed(parts):
                yield len(part), part
