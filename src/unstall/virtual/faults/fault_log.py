"""Collects the faults of a program from the shim's log."""

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
    """One fault of a program on the virtual GPU. Records of the shim's log are named by their
    number, counted from the start of the log.

    Attributes:
        record: The number of the record that says that an assertion failed.
        thread: The thread that submitted the work.
        device: The device of the work that failed.
        stream: The stream of the work that failed.
        node: If the work that failed was captured in a CUDA graph, the number that the shim gave to
            the captured launch; else 0.
        raw: The details of the fault, as a tuple from the shim.
        noticed: The number of the record that says that Python got the error; -1 if Python did not
            get it.
    """

    record: int
    thread: int
    device: int
    stream: int
    node: int
    raw: RawFault
    noticed: int


class FaultLog:
    """Collects the faults of a program while its log arrives in parts.

    Attributes:
        ended: The kind of device error that ended the program; None if none did.
        refusal: The last request for device memory that failed; None if none did.
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
        """Adds the next part of the shim's log.

        Args:
            records: The records of the part, an array of `log.RECORD`.
            raw: The details of the faults that are new in this part. The faults of all parts are
                numbered in this order, and a record names a fault by its number.
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
        """Returns the faults that were added so far, in the order in which they occurred."""
        return [
            FaultRecord(record, thread, device, stream, node, self._raw[number], self._notices.get(number, -1))
            for record, thread, device, stream, number, node in self._asserts
        ]


def of_error(error: BaseException, out_of_memory: type[BaseException]) -> Ended | None:
    """Returns which kind of device error ended the program: the first in the chain that leads from
    an exception to its causes. Returns None if there is none.

    Args:
        error: The exception that ended the program.
        out_of_memory: The class of torch's out-of-memory error.
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
