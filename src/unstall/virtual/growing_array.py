"""An array that often gets new rows and is rarely read."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

_MOST_LOOSE = 256
_ENOUGH_ROWS = 1 << 16


class GrowingArray:
    """Rows of one dtype, stored in parts. Each part has some hundred bytes of overhead, so small parts are joined from
    time to time.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.length = 0
        self._dtype = np.dtype(dtype)
        self._parts: list[np.ndarray] = []
        self._loose: list[np.ndarray] = []
        self._loose_rows = 0

    def append(self, rows: np.ndarray) -> None:
        """Appends a copy of the rows."""
        self._loose.append(rows.astype(self._dtype))
        self._loose_rows += len(rows)
        self.length += len(rows)
        if len(self._loose) == _MOST_LOOSE or self._loose_rows >= _ENOUGH_ROWS:
            self._parts.append(np.concatenate(self._loose) if len(self._loose) > 1 else self._loose[0])
            self._loose, self._loose_rows = [], 0

    def whole(self) -> np.ndarray:
        """Returns all rows as one array."""
        parts = [*self._parts, *self._loose]
        if len(parts) != 1:
            parts = [np.concatenate([np.zeros(0, self._dtype), *parts])]
        self._parts, self._loose, self._loose_rows = parts, [], 0
        return parts[0]

    def since(self, row: int) -> np.ndarray:
        """Returns the rows from number `row` on. Takes time in proportion to the number of these rows, and of all
        parts.
        """
        taken: list[np.ndarray] = []
        first = self.length
        for part in reversed([*self._parts, *self._loose]):
            if first <= row:
                break
            first -= len(part)
            taken.append(part[max(row - first, 0) :])
        return np.concatenate([np.zeros(0, self._dtype), *reversed(taken)])
