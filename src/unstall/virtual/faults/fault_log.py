"""Collects the faults of a program from the shim's log."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from unstall.frameworks import OURS
from unstall.virtual.log import LogCode, RawFault
from unstall.virtual.simulation.requests import Refusal

_SAID = "device-side assert triggered"
_LONGEST_CHAIN = 100
_MOST_REFUSED = 1_000


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
        refused: The requests for device memory that failed, in order; of very many, the last ones.
        refusal: The one whose error ended the program; None if none did.
    """

    def __init__(self) -> None:
        self.ended: Ended | None = None
        self.refused: deque[Refusal] = deque(maxlen=_MOST_REFUSED)
        self.refusal: Refusal | None = None
        self._asserts: list[tuple[int, int, int, int, int, int]] = []
        self._notices: dict[int, int] = {}
        self._raw: list[RawFault] = []
        self._length = 0

    def end_by(
        self,
        error: BaseException,
        out_of_memory: type[BaseException],
        line_of: Callable[[Refusal], tuple[str, int] | None],
    ) -> None:
        """Notes whether `error`, which ends the program, is a device error, and with which request for memory it came.

        A program may catch such an error, ask for less memory, and raise the first error again if this fails too. So
        the request is found by the error's text, and of requests that failed with one text, by the line.

        Args:
            error: The error that ends the program.
            out_of_memory: The class of torch's out-of-memory error.
            line_of: Returns the file and the line at which a request was made; None if they are unknown.
        """
        found = of_error(error, out_of_memory)
        self.ended, self.refusal = found[0] if found else None, None
        if found is None or found[0] != Ended.MEMORY or not self.refused:
            return
        text, line = str(found[1]), _raised_at(found[1])
        alike = [each for each in self.refused if str(each.error) in text] or list(self.refused)
        self.refusal = next((each for each in reversed(alike) if line_of(each) == line), alike[-1])

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


def of_error(error: BaseException, out_of_memory: type[BaseException]) -> tuple[Ended, BaseException] | None:
    """Returns the device error that ended the program, after its kind: the first in the chain that
    leads from an exception to its causes. Returns None if there is none.

    Args:
        error: The exception that ended the program.
        out_of_memory: The class of torch's out-of-memory error.
    """
    chain: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if chain is None:
            break
        if isinstance(chain, out_of_memory):
            return Ended.MEMORY, chain
        if _SAID in str(chain):
            return Ended.FAULT, chain
        chain = chain.__cause__ or chain.__context__
    return None


def _raised_at(error: BaseException) -> tuple[str, int] | None:
    """Returns the file and the line at which an error was raised, or None if that is unknown."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return next((at for at in reversed(frames) if not at[0].startswith(OURS)), None)
