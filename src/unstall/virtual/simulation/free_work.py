"""Work of the host that took time here, and none on the virtual clock."""

from __future__ import annotations

from array import array

import numpy as np

from unstall.timeline.columns import I64


class FreeWork:
    """The pieces of work of the host that did not advance the virtual clock, in order.

    Attributes:
        total_ns: How long all of them took here, in ns of real time.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._columns = [array("q") for _ in range(4)]

    def add(self, before: int, after: int, record: int, ns: int) -> None:
        """Adds a piece.

        Args:
            before: The number of the Python stack before the work; -1 if it is unknown.
            after: That of the stack after it.
            record: The number of the log's record that came after it.
            ns: How long it took here, in ns.
        """
        self.total_ns += ns
        for column, value in zip(self._columns, (before, after, record, ns), strict=True):
            column.append(value)

    def whole(self) -> tuple[I64, I64, I64, I64]:
        """Returns the pieces as columns: the arguments of `add`."""
        before, after, record, ns = (np.array(column, np.int64) for column in self._columns)
        return before, after, record, ns


def longest(before: I64, after: I64, ns: I64) -> tuple[tuple[int, int], int]:
    """Returns the pair of stacks between which the work took longest, and for how long, in ns. There must be some
    work.
    """
    pairs, which = np.unique(np.stack((before, after), axis=1), axis=0, return_inverse=True)
    took = np.bincount(which.reshape(-1), ns)
    most = int(took.argmax())
    return (int(pairs[most, 0]), int(pairs[most, 1])), int(took[most])
