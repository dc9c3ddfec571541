"""What the job needs from one rank's trace: about 1 MB of plain data, which can be sent and cached.

A summary is a zlib-compressed msgpack of the struct `Summary`. Columns of numbers are bytes with a type. Nothing is
pickled, and every column is checked when a summary is decoded.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeVar

import msgspec
import numpy as np

from unstall._version import __version__
from unstall.decoding import from_msgpack
from unstall.errors import TraceError
from unstall.fleets.reduce import Arrivals
from unstall.replay.program import Instructions, Ops, Program, Recorded
from unstall.result import Accounts, Finding, Where
from unstall.timeline.columns import I64

SCHEMA = "unstall.rank/1"
_MOST_BYTES = 1 << 30
LOADING = "data-loading"
"""The rule whose findings explain by themselves that a rank loads data."""
_TYPES = ("i1", "i2", "i4", "i8")
_Table = TypeVar("_Table")


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A column of integers: little-endian, of the smallest type that fits."""

    type: str
    width: int  # numbers in a row; 1 for a plain column
    data: bytes


class Group(msgspec.Struct, frozen=True, array_like=True):
    """A process group, as this rank knows it.

    `ranks` are the global ranks of its members, in ascending order; empty if the trace does not tell them. `size` is
    the number of members, or -1.
    """

    name: str
    ranks: tuple[int, ...]
    size: int


class Cost(IntEnum):
    """What a row of `Costs` counts. HOST is the host's own time: it neither waits nor loads nor sleeps."""

    KERNEL = 0
    COPY = 1
    WAIT = 2  # the host waits for the device
    LOADING = 3  # the host waits for its next batch
    ASLEEP = 4  # the host sleeps, or waits for a file or another process
    HOST = 5


@dataclass(frozen=True, eq=False, slots=True)
class Calls:
    """The collectives of one rank, in the order in which the host enqueued them. Times are in ns of the rank's clock.

    Their sizes and times are those of the device op that communicates.
    """

    op: I64  # op of the reduced program; -1 if the op lies outside of the program
    group: I64  # index into `Summary.groups`
    kind: I64  # index of `locate.collectives.Kind`, in its order
    sequence: I64  # torch's number of the operation within its group, or -1
    source: I64  # of a send or a receive: the global rank that sends, or -1
    target: I64
    sent: I64  # bytes, or -1
    received: I64
    enqueued: I64  # start of the host's call; that of the op if the call is unknown
    started: I64
    ended: I64
    place: I64  # index into `Summary.places`, or -1
    step: I64  # index of the step that enqueued it, or -1
    position: I64  # its number within the step, or -1
    beside: I64  # ns of its time in which the device also computed

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, eq=False, slots=True)
class Costs:
    """What each line costs in each stretch between collectives, summed over all steps.

    A stretch has the number of the collective that ends it, counted within the step.
    """

    step: I64
    stretch: I64
    place: I64  # index into `Summary.places`, or -1 for a place that is not known
    kind: I64  # Cost
    time: I64  # ns
    count: I64  # kernels, copies, or host events
    blocks: I64  # thread blocks of the kernels; 0 if not known

    def __len__(self) -> int:
        return len(self.step)


def explains(finding: Finding) -> bool:
    """Returns whether a finding may say why a rank is late: if it is at a line of source, or about loading data.

    Communication is not the rank's own work, and what is harmless explains nothing.
    """
    at_a_line = finding.where.file is not None and not finding.harmless and finding.rule != "exposed-comm"
    return at_a_line or finding.rule == LOADING


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. Times without a note are in ns of the rank's own clock, from `zero_ns` on.

    Attributes:
        rank: The global rank; -1 if it is unknown.
        rank_by: Where the rank comes from: "distributedInfo", "file name" or "nothing".
        machine: The host's name, if the file's name contains it.
        edits: The edits that were made to the program, as `unstall whatif` takes them.
        accounts: Busy and idle time of the rank's own device.
        findings: What the rules found in this rank and `explains` it, without gains.
        replay_step_ns: The step time of a replay of the rank alone.
        plain_step_ns: The step time that the recorder measured without recording; None if it did not.
        comm_factors: The factor of each collective's length that the edits made, in thousandths, by row of `calls`.
    """

    schema: str = SCHEMA
    version: str = __version__
    path: str
    size_bytes: int
    rank: int
    rank_by: str
    world_size: int | None
    machine: str | None
    device: str | None
    torch: str | None
    edits: tuple[str, ...] = ()
    zero_ns: int
    sound: bool
    notes: tuple[str, ...]
    steps_by: str
    unit: str
    step_start: Packed
    step_end: Packed  # when both the host and the device have finished it
    mean_step_ns: int
    replay_step_ns: int
    plain_step_ns: int | None = None
    accounts: Accounts
    findings: tuple[Finding, ...]
    groups: tuple[Group, ...]
    places: tuple[Where, ...]
    calls: dict[str, Packed]
    costs: dict[str, Packed]
    instructions: dict[str, Packed]
    ops: dict[str, Packed]
    arrivals: dict[str, Packed]
    device_of_stream: Packed
    step_starts: Packed
    step_ends: Packed
    threads: int
    engines: int
    capacity: int
    inferred: tuple[str, ...]
    comm_factors: Packed


def pack(column: np.ndarray) -> Packed:
    """Packs a column of integers, or a table of them with a fixed width."""
    low, high = (int(column.min()), int(column.max())) if column.size else (0, 0)
    kind = next(t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    width = column.shape[1] if column.ndim == 2 else 1
    return Packed(kind, width, np.ascontiguousarray(column, dtype=f"<{kind}").tobytes())


def unpack(packed: Packed) -> I64:
    """Returns the column as int64. Raises ValueError if it is not a whole column."""
    if packed.type not in _TYPES or not 1 <= packed.width <= 64:
        raise ValueError(f"a column of type {packed.type!r}")
    column = np.frombuffer(packed.data, dtype=f"<{packed.type}").astype(np.int64)
    return column.reshape(-1, packed.width) if packed.width > 1 else column


def pack_table(table: object, leave_out: tuple[str, ...] = ()) -> dict[str, Packed]:
    """Packs all columns of a table, a dataclass of columns."""
    names = [field.name for field in fields(table) if field.name not in leave_out]  # type: ignore[arg-type]
    return {name: pack(getattr(table, name)) for name in names}


def unpack_table(cls: type[_Table], packed: dict[str, Packed], **more: np.ndarray) -> _Table:
    """Returns the table. Raises ValueError if a column is missing, or if the columns differ in length."""
    types = {"I8": np.int8, "I32": np.int32}
    columns: dict[str, Any] = dict(more)
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name in more:
            continue
        if field.name not in packed:
            raise ValueError(f"no column {field.name}")
        columns[field.name] = unpack(packed[field.name]).astype(types.get(str(field.type), np.int64))
    if len({len(column) for column in columns.values()} - {0 if more else -1}) > 1:
        raise ValueError(f"the columns of {cls.__name__} differ in length")
    return cls(**columns)


@dataclass(frozen=True, eq=False)
class Rank:
    """A decoded summary: its tables, and its program."""

    summary: Summary
    calls: Calls
    costs: Costs
    program: Program
    arrivals: Arrivals
    step_start: I64
    step_end: I64
    comm_factors: I64  # thousandths

    @property
    def number(self) -> int:
        """The global rank."""
        return self.summary.rank

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.step_start)


def encode(summary: Summary) -> bytes:
    """Returns the summary as bytes."""
    return zlib.compress(msgspec.msgpack.encode(summary), 6)


def decode(data: bytes) -> Rank:
    """Decodes a summary and checks it.

    Raises:
        TraceError: The data is no summary of this version, or a column is damaged.
    """
    try:
        opened = zlib.decompressobj()
        summary = from_msgpack(opened.decompress(data, _MOST_BYTES), Summary)
        if summary.schema != SCHEMA or summary.version != __version__ or opened.unconsumed_tail:
            raise TraceError(f"a rank's summary of another version: {summary.version}")
        return _decoded(summary)
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise TraceError(f"not a whole summary of a rank: {error}") from None


def _decoded(summary: Summary) -> Rank:
    rows = len(unpack(summary.instructions["code"]))
    none = {
        "host": np.full(rows, -1, dtype=np.int32),
        "recorded": np.zeros((rows, len(Recorded)), dtype=np.int32),
    }
    ops = unpack_table(Ops, summary.ops, device=np.full(len(unpack(summary.ops["stream"])), -1, dtype=np.int32))
    program = Program(
        instructions=unpack_table(Instructions, summary.instructions, **none),
        ops=ops,
        threads=summary.threads,
        device_of_stream=unpack(summary.device_of_stream).astype(np.int32),
        engines=summary.engines,
        capacity=summary.capacity,
        step_starts=unpack(summary.step_starts),
        step_ends=unpack(summary.step_ends),
        thread_of=np.arange(summary.threads, dtype=np.int32),
        notes=summary.inferred,
    )
    arrivals = Arrivals(*(unpack(summary.arrivals[name]).reshape(-1, 3) for name in ("host", "device")))
    calls, costs = unpack_table(Calls, summary.calls), unpack_table(Costs, summary.costs)
    rank = Rank(
        summary,
        calls,
        costs,
        program,
        arrivals,
        unpack(summary.step_start),
        unpack(summary.step_end),
        unpack(summary.comm_factors),
    )
    _check(rank)
    return rank


def _check(rank: Rank) -> None:
    """Raises ValueError if an index of the summary points outside of its table."""
    calls, costs, program, summary = rank.calls, rank.costs, rank.program, rank.summary
    within = (
        ("calls.op", calls.op, -1, len(program.ops)),
        ("calls.group", calls.group, 0, len(summary.groups)),
        ("calls.place", calls.place, -1, len(summary.places)),
        ("calls.step", calls.step, -1, rank.steps),
        ("costs.place", costs.place, -1, len(summary.places)),
        ("costs.step", costs.step, 0, rank.steps),
        ("costs.kind", costs.kind, 0, len(Cost)),
        ("step_starts", program.step_starts, 0, len(program.instructions)),
        ("step_ends", program.step_ends, 0, len(program.instructions)),
    )
    for name, column, least, end in within:
        if len(column) and (column.min() < least or column.max() >= end):
            raise ValueError(f"{name} points outside of its table")
    lengths = (len(rank.step_end), len(program.step_starts), len(program.step_ends))
    if not rank.steps or set(lengths) != {rank.steps}:
        raise ValueError("its steps differ in number")
    if len(rank.arrivals.host) != len(program.ops) or len(rank.comm_factors) != len(calls):
        raise ValueError("its columns differ in length")
