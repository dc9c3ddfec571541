"""Stores the faults of a program and their streams. The simulation's history does not store the streams of faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from unstall.virtual.log import LogCode, RawFault
from unstall.virtual.simulation.requests import Refusal

_SAID = "device-side assert triggered"
_LONGEST_CHAIN = 100


class Ended(Enum):
    """The kind of device error that ended the program: a failed device-side assertion, or an out-of-memory error."""

    FAULT = "fault"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault in the log. The number of a record is its position in the whole log.

    Attributes:
        record: The number of the fault's ASSERT record.
        thread: The thread that submitted the work.
        device: The device of the work that failed.
        stream: The stream of the work that failed.
        node: The number of the captured LAUNCH that failed, or 0 if the work was not captured.
        raw: The details of the fault, as a tuple from the shim.
        noticed: The number of the fault's NOTICE record, or -1 if Python did not get the error.
    """

    record: int
    thread: int
    device: int
    stream: int
    node: int  # the number of the captured LAUNCH, or 0
    raw: RawFault
    noticed: int  # record number, or -1


class FaultLog:
    """Collects the faults of a log that arrives in parts. `ended` is the kind of device error that ended the program.
    `refusal` is the last failed request for device memory.
    """

    def __init__(self) -> None:
        self.ended: Ended | None = None
        self.refusal: Refusal | None = None
        self._asserts: list[tuple[int, int, int, int, int, int]] = []
        self._notices: dict[int, int] = {}
        self._raw: list[RawFault] = []
        self._length = 0

    @property
    def known(self) -> int:
        """The number of faults that were added so far."""
        return len(self._raw)

    def add(self, records: np.ndarray, raw: Sequence[RawFault]) -> None:
        """Adds the next part of the log: its records, and the details of its new faults (`raw`). A record refers to a
        fault by the fault's number.
        """
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


def of_error(error: BaseException, out_of_memory: type[BaseException]) -> Ended | None:
    """Returns the kind of device error that ended the program. Searches `error` and its causes for a failed device-side
    assertion or an out-of-memory error. Returns None if there is no such error. `out_of_memory` is the class of torch's
    out-of-memory error.
    """
    chain: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if chain is None:
            break
        if isinstance(chain, out_of_memory):
            return Ended.MEMORY
        if _SAID in str(chain):
            return Ended.FAULT
        chain = chain.__cause__ or chain.__context__
    return None
