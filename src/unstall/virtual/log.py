"""The log that the shim writes, as numpy arrays. One array has a record for each thing that the
program asked of its GPU. The other array has the memory ranges that these records use.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from types import CodeType
from typing import Protocol, TypeAlias

import numpy as np

RECORD = np.dtype(
    [
        ("host_ns", "<i8"),  # CLOCK_MONOTONIC when written
        ("computing_ns", "<i8"),  # since the thread's previous record: computing values, or waiting for a core
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
        # COPY from the host: a number for the copied bytes, from 1 on; 0 if unknown. OP_BEGIN of a thread that runs no
        # Python: the number of the thread that called it, plus 1; 0 if unknown
        ("content", "<i4"),
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
    """The kinds of records in the shim's log. The comments say what the fields of each kind of
    record mean. The shim's log.h has the same numbers.
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
    PIN = 19  # a: bytes of host memory that the driver pins; torch never unpins them
    SLEEP = 20  # a: cycles of torch.cuda._sleep
    ADVANCE = 21  # a: ns that the program slept
    ASSERT = 26  # a: the fault; b: the number of the captured LAUNCH that fails, or 0; id: the operator that fails
    NOTICE = 27  # a: the fault whose error is raised, for the first time
    COLLECTIVE_CALL = 29  # the call that launches a collective on `stream`; the thread's next COLLECTIVE is its kernel
    COLLECTIVE = 30  # a: the number of the collective in the simulation
    CLOCK = 31  # a: the number of a read of the clock, whose time is found when the record is simulated
    WORK = 28  # id: the signature of an operator that computed on the CPU; a: the threads that the program set, or 0
    GIVE = 33  # a: the number of this moment, at about which it is written: ns of CLOCK_MONOTONIC
    TAKE = 34  # a: the number of the moment of another thread after which this thread goes on, or begins
    CALL = 32  # a: how many times as long as usual it takes; flags: TorchCall


class Within(IntEnum):
    """What a thread was doing before it wrote a record of the shim's log: the kind of the innermost
    operator that it was in, if any.
    """

    NO_OPERATOR = 0
    DEVICE_OPERATOR = 1
    HOST_OPERATOR = 2  # has nothing to do with a device


NO_PYTHON = -1
"""The `stack` of a record whose thread runs no Python, such as a thread of autograd."""
ON_HOST = 1
"""Flag of an OP_BEGIN record: the operator has nothing to do with a device."""
NVTX = 1
"""Flag of a MARK_BEGIN or MARK_END record: the annotation is a range of NVTX."""
TIMED = 1
"""Flag of an EVENT_RECORD record: the device writes down when it happens."""
CPU_PREFIX = "cpu "
"""How the name of an operator begins in the signature of a WORK record. Example: "cpu aten::mul"."""


class TorchCall(IntEnum):
    """Flags of a CALL record. Each is a kind of work of torch's own code. It takes the host time, but calls no operator
    and asks nothing of the device. `HostCosts` has its cost, in a field of the same name.
    """

    CURRENT_STREAM = 0  # also of the default stream: torch makes a new object each time
    SET_STREAM = 1
    NEW_STREAM = 2
    NEW_EVENT = 3
    MEMORY_STATS = 4
    RESET_MEMORY_STATS = 5
    MEMORY_INFO = 6
    AUTOCAST = 7  # entering and leaving it
    PARAMETER = 8  # what an optimizer's step does for each of its parameters
    UNSCALED = 9  # what a GradScaler does for each gradient
    CHOOSE_ATTENTION = 10  # `sdpa_kernel`, at its begin and at its end
    WALK = 11  # what `nn.Module.parameters()` and others do for each module
    SET_MODE = 12  # what `nn.Module.train()` does for each module
    SEED = 13  # `torch.manual_seed`
    SEED_DEVICE = 14  # `torch.cuda.manual_seed`
    RNG_STATE = 15  # `torch.cuda.get_rng_state`
    NO_GRAD = 16  # entering and leaving it, as the next three
    ENABLE_GRAD = 17
    INFERENCE_MODE = 18
    SWITCH_DEVICE = 19  # `with torch.cuda.device(…)`
    SET_DEVICE = 20
    CURRENT_DEVICE = 21
    IDENTITY = 22  # a call of `nn.Identity`
    SAVE_STATE = 23  # what `nn.Module.state_dict()` does for each module


class CopyFlag(IntFlag):
    """Flags of a COPY record. The two lowest bits are the direction: 0 is from one device to
    another device, and 1 to 3 are the first three members.
    """

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
"""A call of an operator: `(name, overload, arguments, outputs)`, or the same with `precision` at
the end, which says whether float32 is rounded to TF32. `costs.signature` says what the elements
are.
"""
RawValue: TypeAlias = tuple[str, int | float, Sequence[int], int | None, int | None, int, int]
"""A wrong value that made an assertion fail: `(argument, value, position, least, bound, count,
of)`. `argument` is the name of the tensor, and `position` is the index of the value in it. `least`
is the smallest valid value, and `bound` is the smallest value that is too large; each is None if
there is no such limit. Of the `of` values of the tensor, `count` are wrong.
"""
RawFault: TypeAlias = tuple[str, str, Sequence[tuple[str, str, Sequence[int]]], RawValue | None]
"""A device-side assertion that failed: `(kernel, check, tensors, wrong)`. `kernel` is the operator
whose kernel checks, and `check` is the text of the assertion. `tensors` are the operator's tensors
as tuples `(name, dtype, shape)`. `wrong` is the first wrong value, or None if it is unknown.
"""
Stack: TypeAlias = Sequence[tuple[CodeType, int]]
"""The frames of a Python stack, innermost first, as pairs `(code object, offset of the instruction in the code)`."""


class LogSource(Protocol):
    """What provides the log of a program on the virtual GPU: the shim, or an object of a test."""

    def take(self) -> tuple[bytes, bytes, bytes]:
        """Removes from the log all that it has, and returns it.

        Returns:
            `(records, uses, events)`: the bytes of three arrays. The dtype of `records` is RECORD.
            The dtype of `uses` is USE: the memory that the records use. `events` has the numbers of
            the CUDA events to which no later record refers, as int64.
        """

    def signatures(self, first: int) -> Sequence[RawSignature]:
        """Returns the signatures of operators that the log has, from number `first` on, as tuples
        that `costs.signature.parse` reads.
        """

    def names(self, first: int) -> Sequence[str]:
        """Returns the names of operators and annotations that the log has, from number `first` on."""

    def faults(self, first: int) -> Sequence[RawFault]:
        """Returns the faults that the log has, from number `first` on."""

    def stacks(self, first: int) -> Sequence[Stack]:
        """Returns the Python stacks that the log has, from number `first` on."""

    def unknown_reads(self) -> Sequence[int]:
        """Returns the numbers of the stacks at which the program read values that were not
        computed, in order of the first read.
        """

    def assumed_finds(self) -> Sequence[int]:
        """Returns the numbers of the stacks at which the program searched values that were not
        computed, in order of the first search. Half of the elements are assumed to be found.
        """

    def divisions_by_zero(self) -> Sequence[int]:
        """Returns the numbers of the stacks at which the program divided integers by zero, in order of the first."""

    def this_thread(self) -> int:
        """Returns the number that the log gives to the calling thread."""

    def now_ns(self) -> int:
        """Returns the current time of CLOCK_MONOTONIC in ns. The times of records are times of this clock."""

    def moment(self) -> tuple[int, int, int]:
        """Returns where the calling thread is now, and when.

        Returns:
            `(stack, host_ns, computing_ns)`. `stack` is the number of the thread's Python stack.
            `host_ns` is the time of CLOCK_MONOTONIC. `computing_ns` is how long, since its last record, the
            thread computed values of tensors or waited for a core that another process had; the
            `computing_ns` of its next record does not include this time again.
        """

    def append(self, code: int, device: int = -1, stream: int = 0, a: int = 0) -> None:
        """Writes a record for the calling thread.

        Args:
            code: The kind of record, a `LogCode`.
            device: The device of the record; -1 if it has none.
            stream: The stream of the record.
            a: The field `a` of the record. `LogCode` says what it means.
        """

    def hold_signals(self) -> None:
        """Delays signals that have handlers in Python, until `release_signals` was called as often as this."""

    def release_signals(self) -> None: ...

    def raise_later(self, exception: Exception) -> None:
        """Stores an exception. The program's next call that uses the device or waits for it raises this exception."""

    def set_logging(self, on: bool) -> None:
        """Sets whether records are written."""

    def set_telling_ns(self, ns: int) -> None:
        """Sets the time, in ns, that torch takes on this machine to report the begin or the end of
        an operator to the log. It does not count as time of the program, just as the time of
        writing the log does not.
        """

    def set_headroom(self, device: int, size_bytes: int) -> None:
        """Tells the shim that memory requests of `size_bytes` in total fit on the device for
        certain. Until they sum up to that, the shim need not ask.
        """


def chosen(*codes: int) -> np.ndarray:
    """Returns a bool array with an element for each `LogCode`. It is True for `codes`.
    `chosen(...)[records["code"]]` then tells which records are of these kinds; for small arrays,
    this is faster than `np.isin`.
    """
    table = np.zeros(max(LogCode) + 1, np.bool_)
    table[list(codes)] = True
    return table


OF_MOMENTS = chosen(LogCode.GIVE, LogCode.TAKE)
"""The kinds of records that order Python threads."""
OF_ITS_THREAD = chosen(LogCode.ADVANCE, LogCode.CLOCK, LogCode.CALL) | OF_MOMENTS
"""The kinds of records that no device and no thread of autograd has to do with, such as a sleep."""


def records_of(data: bytes) -> np.ndarray:
    """Returns the records of the shim's log in `data`, as an array of RECORD. Raises ValueError if
    the last record is incomplete.
    """
    return np.frombuffer(data, RECORD)


def uses_of(data: bytes) -> np.ndarray:
    """Returns the uses of memory of the shim's log in `data`, as an array of USE. Raises ValueError
    if the last row is incomplete.
    """
    return np.frombuffer(data, USE)
