"""The log that the shim writes, as numpy arrays: one array for records, and one array for the memory ranges that
records use."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from types import CodeType
from typing import Protocol, TypeAlias

import numpy as np

RECORD = np.dtype(
    [
        ("host_ns", "<i8"),  # CLOCK_MONOTONIC when written
        ("computing_ns", "<i8"),  # spent by the thread on computing values since its previous record
        ("a", "<i8"),
        ("b", "<i8"),
        ("stream", "<i8"),  # c10's stream number on `device`
        ("thread", "<i4"),  # numbered by first use; 0 is the thread that loaded torch
        ("stack", "<i4"),  # NO_PYTHON; -2: unknown
        ("id", "<i4"),  # a signature (LAUNCH, WORK) or a name (OP_BEGIN, MARK_BEGIN, ASSERT), else -1
        ("uses", "<i4"),  # number of its rows in USE
        ("code", "u1"),
        ("device", "i1"),
        ("flags", "u1"),
        ("within", "u1"),  # Within: what the thread was in before
        ("content", "<i4"),  # COPY from the host: a number for the copied bytes, from 1 on; 0 if unknown
    ]
)
USE = np.dtype(
    [
        ("allocation", "<i8"),  # negative for pinned host memory
        ("offset", "<i8"),
        ("bytes", "<i8"),
        ("write", "u1"),
        ("pad", "V7"),
    ]
)
assert RECORD.itemsize == 64
assert USE.itemsize == 32


class LogCode(IntEnum):
    """The kinds of records in the log. The comments give the meaning of the fields `a` and `b`. The shim's log.h has
    the same numbers.
    """

    OP_BEGIN = 0  # id: its name; a: autograd's sequence number or -1; b: the forward thread or -1
    OP_END = 1
    MARK_BEGIN = 2  # an annotation of record_function
    MARK_END = 3
    # b: the number of its request for memory, if the shim waits for the answer, or 0
    LAUNCH = 4  # id: the signature of an operator that submits work to `stream`; a: its number if captured, or 0
    COPY = 5  # a: bytes; b: the peer device or -1; flags: CopyFlag
    MALLOC = 6  # a: the allocation; b: bytes requested
    FREE = 7  # a
    USE_STREAM = 8  # a: the allocation that `stream` uses too
    EVENT_RECORD = 9  # a: the event
    EVENT_WAIT = 10  # a: the event that `stream` waits for
    SYNC_EVENT = 11  # a
    SYNC_STREAM = 12
    SYNC_DEVICE = 13
    EMPTY_CACHE = 14
    CAPTURE_BEGIN = 15  # a: the graph; b: its pool
    CAPTURE_END = 16  # a
    GRAPH_LAUNCH = 17  # a
    GRAPH_FREE = 18  # a
    PIN = 19  # a: bytes of host memory to pin; torch never unpins them
    SLEEP = 20  # a: cycles of torch.cuda._sleep
    ADVANCE = 21  # a: ns that the program slept
    ASSERT = 26  # a: the fault; b: the number of the captured LAUNCH that fails, or 0; id: the operator that fails
    NOTICE = 27  # a: the fault whose error is raised, for the first time
    COLLECTIVE_CALL = 29  # the call that launches a collective on `stream`; the thread's next COLLECTIVE is its kernel
    COLLECTIVE = 30  # a: the number of the collective in the simulation
    CLOCK = 31  # a: the number of a read of the clock, whose time is found when the record is simulated
    WORK = 28  # id: the signature of an operator that computed on the CPU; a: the threads that the program set, or 0


class Within(IntEnum):
    """The kind of the innermost operator that a thread was running before it wrote a record."""

    NO_OPERATOR = 0
    DEVICE_OPERATOR = 1
    HOST_OPERATOR = 2  # has nothing to do with a device


NO_PYTHON = -1
"""The `stack` of a record whose thread runs no Python, as a thread of autograd."""
ON_HOST = 1
"""Flag of an OP_BEGIN: the operator is a HOST_OPERATOR."""
NVTX = 1
"""Flag of a MARK_BEGIN and a MARK_END: the annotation is a range of NVTX."""
CPU_PREFIX = "cpu "
"""The prefix of the operator names in signatures of WORK records. Example: "cpu aten::mul"."""


class CopyFlag(IntFlag):
    """Flags of a COPY. The two lowest bits are the direction. Direction 0 means from one device to another device."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    PINNED = 4
    NON_BLOCKING = 8
    VALUE = 16  # the read of a value: item()
    SIMULATED = 32  # also of the SYNC_STREAM after it: the simulation of a launch includes it


DIRECTION_BITS = 3
RawSignature: TypeAlias = (
    tuple[str, str, Sequence[object], Sequence[object]] | tuple[str, str, Sequence[object], Sequence[object], str]
)
"""An operator's name, overload, arguments, outputs and precision; see `costs.signature`."""
RawValue: TypeAlias = tuple[str, int | float, Sequence[int], int | None, int | None, int, int]
"""A wrong value: (name of its argument, value, its position in the argument, smallest valid value, smallest value that
is too large, number of wrong values, number of all values).
"""
RawFault: TypeAlias = tuple[str, str, Sequence[tuple[str, str, Sequence[int]]], RawValue | None]
"""A failed assertion: (operator whose kernel checks, text of the check, the operator's tensors as (name, dtype, shape),
first wrong value or None if unknown).
"""
Stack: TypeAlias = Sequence[tuple[CodeType, int]]
"""Frames, innermost first: (code object, offset of the instruction in the code)."""


class LogSource(Protocol):
    """A source of the log: the shim, or a test."""

    def take(self) -> tuple[bytes, bytes, bytes]:
        """Removes and returns everything that was logged since the last call. Returns the bytes of three arrays:
        (records, uses of memory, events). `events` (int64) lists the CUDA events that no later record refers to.
        """

    def signatures(self, first: int) -> Sequence[RawSignature]:
        """Returns the signatures from number `first` on, as plain tuples that `costs.signature.parse` reads."""

    def names(self, first: int) -> Sequence[str]:
        """Returns the names from number `first` on."""

    def faults(self, first: int) -> Sequence[RawFault]:
        """Returns the faults from number `first` on."""

    def stacks(self, first: int) -> Sequence[Stack]:
        """Returns the stacks from number `first` on."""

    def this_thread(self) -> int:
        """Returns the number of the calling thread."""

    def now_ns(self) -> int:
        """Returns the current time of CLOCK_MONOTONIC. The times of records are times of this clock."""

    def moment(self) -> tuple[int, int, int]:
        """Returns (stack, host_ns, computing_ns) of the calling thread. `host_ns` is the time of CLOCK_MONOTONIC.
        `computing_ns` is how long the thread computed tensor values since its last record. The next record does not
        count this time again.
        """

    def append(self, code: int, device: int = -1, stream: int = 0, a: int = 0) -> None:
        """Writes a record for the calling thread."""

    def hold_signals(self) -> None:
        """Delays signals that have Python handlers. Each call needs a call of `release_signals`."""

    def release_signals(self) -> None: ...

    def raise_later(self, exception: Exception) -> None:
        """Stores an exception. The next call that uses the device or waits for the device raises the exception."""

    def set_logging(self, on: bool) -> None:
        """Stops or starts the writing of records."""

    def set_telling_ns(self, ns: int) -> None:
        """Sets how long torch takes on this machine to report the begin or the end of an operator to the log. This time
        does not count as the program's time. The time of writing the log does not count as the program's time either.
        """

    def set_headroom(self, device: int, size_bytes: int) -> None:
        """Tells the shim how many bytes of new memory requests are certain to fit on the device."""


def chosen(*codes: int) -> np.ndarray:
    """Returns a bool array, indexed by code, that is True for `codes`. Faster than `np.isin`, whose overhead dominates
    small batches.
    """
    table = np.zeros(max(LogCode) + 1, np.bool_)
    table[list(codes)] = True
    return table


def records_of(data: bytes) -> np.ndarray:
    """Converts bytes to an array of RECORD. Raises ValueError if the last record is incomplete."""
    return np.frombuffer(data, RECORD)


def uses_of(data: bytes) -> np.ndarray:
    """Converts bytes to an array of USE. Raises ValueError if the last row is incomplete."""
    return np.frombuffer(data, USE)
