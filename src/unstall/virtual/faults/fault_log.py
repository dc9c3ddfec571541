"""Keeps the records of faults, which are few: the simulation's history does not have their streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstall.virtual.log import LogCode, RawFault

_SAID = "device-side assert triggered"
_LONGEST_CHAIN = 100


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """An ASSERT, and the NOTICE of its error if there is one. Record numbers are positions in the whole log."""

    record: int
    thread: int
    device: int
    stream: int
    node: int  # the number of the captured LAUNCH, or 0
    raw: RawFault
    noticed: int  # record number, or -1


class FaultLog:
    """Collects the log in parts. `ended`: the program ended by the error of a fault."""

    def __init__(self) -> None:
        self.ended = False
        self._asserts: list[tuple[int, int, int, int, int, int]] = []
        self._notices: dict[int, int] = {}
        self._raw: list[RawFault] = []
        self._length = 0

    @property
    def known(self) -> int:
        """How many faults were added so far."""
        return len(self._raw)

    def add(self, records: np.ndarray, raw: Sequence[RawFault]) -> None:
        """Adds the next part of the log, and the next faults that its records may name."""
        self._raw += raw
        rows = np.flatnonzero(records["code"] >= LogCode.ASSERT)
        for row in rows.tolist():
            code, thread, device, stream, a, b = (
                int(records[name][row]) for name in ("code", "thread", "device", "stream", "a", "b")
            )
            if code == LogCode.ASSERT:
                self._asserts.append((self._length + row, thread, device, stream, a, b))
            else:
                self._notices[a] = self._length + row
        self._length += len(records)

    def faults(self) -> list[FaultRecord]:
        """Returns the faults so far, in order of time."""
        return [
            FaultRecord(record, thread, device, stream, node, self._raw[number], self._notices.get(number, -1))
            for record, thread, device, stream, number, node in self._asserts
        ]


def is_of_fault(error: BaseException) -> bool:
    """Returns whether this error, or one that it came from, is that of a device's fault."""
    chain: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if chain is None:
            break
        if _SAID in str(chain):
            return True
        chain = chain.__cause__ or chain.__context__
    return False
