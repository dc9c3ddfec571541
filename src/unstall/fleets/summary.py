"""`Summary`: what the analysis of a job needs from one rank's trace. It is about 1 MB of plain data, which can be sent
and cached.

An encoded summary is the struct `Summary` as msgpack, compressed with zlib. Arrays of numbers are bytes with a type.
Nothing is pickled. When a summary is decoded, every array is checked.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import DTypeLike

from unstall._version import __version__
from unstall.decoding import from_msgpack
from unstall.errors import TraceError
from unstall.fleets.reduce import Arrivals
from unstall.locate.collectives import Kind
from unstall.replay.program import Instructions, Ops, Program, Recorded
from unstall.replay.validate import MOST_THREADS, check
from unstall.result import Finding, Where
from unstall.timeline.columns import I64, Table

SCHEMA = "unstall.rank/1"
_MOST_BYTES = 1 << 30
_MOST_ALIKE = 1 << 24  # integers that take the room of one: more of them in a file may be an attack
LOADING = "data-loading"
"""The name of the rule that finds data loading. Its findings explain why a rank is late even if they name no source
line."""
_TYPES = {"i1": (1 << 7) - 1, "i2": (1 << 15) - 1, "i4": (1 << 31) - 1, "i8": (1 << 63) - 1}  # the largest of each
_Table = TypeVar("_Table")


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """An array of integers as bytes.

    Attributes:
        type: The type of an integer: "i1", "i2", "i4" or "i8" (little-endian), the smallest that fits.
        data: The bytes of the integers. If all are equal, the bytes of one.
        alike: The number of integers if all are equal. Otherwise -1.
    """

    type: str
    data: bytes
    alike: int = -1


class Group(msgspec.Struct, frozen=True, array_like=True):
    """A process group, as the trace of one rank describes it.

    Attributes:
        name: The name that torch gave the group. "" if it is unknown.
        ranks: The global numbers of the ranks in the group, in ascending order. Empty if the trace does not tell them.
        size: The number of ranks in the group. -1 if it is unknown.
    """

    name: str
    ranks: tuple[int, ...]
    size: int


class Cost(IntEnum):
    """What a row of `Costs` counts: the time of kernels, of copies, or of one state of the host. HOST is the host's own
    work: it neither waits nor loads data nor sleeps."""

    KERNEL = 0
    COPY = 1
    WAIT = 2  # the host waits for the device
    LOADING = 3  # the host waits for its next batch
    ASLEEP = 4  # the host sleeps, or waits for a file or another process
    HOST = 5


class Calls(Table, frozen=True, eq=False):
    """The collectives of one rank, in the order in which the host launched them. Each array has one value for each
    collective. Times are in ns of the rank's clock, from `Summary.zero_ns` on.

    Attributes:
        op: The index of the collective's op in the rank's reduced program. -1 if the program does not contain it.
        group: The index of its process group in `Summary.groups`.
        kind: The kind of the collective, as an index into `unstall.fleets.summarise.KINDS`.
        sequence: The number that torch gave the collective within its group. -1 if it is unknown.
        source: For a send or receive, the global number of the rank that sends. For a batch of both, that of the rank
            from which this one receives. -1 if it is unknown.
        target: For a send or receive, the global number of the rank that receives. For a batch of both, that of the
            rank to which this one sends. -1 if it is unknown.
        sent: The bytes that the rank sends. -1 if they are unknown.
        received: The bytes that the rank receives. -1 if they are unknown.
        enqueued: When the host launched the collective. If the launch is not in the trace, when the op began.
        started: When the op began on the device.
        ended: When the op ended on the device.
        place: The source line that launched the collective, as an index into `Summary.places`. -1 if it is unknown.
        step: The index of the step that launched the collective. -1 if no step did.
        position: The number of the collective within its step, from 0. -1 if it is in no step.
        beside: The part of the op's time in which the device also did other work, in ns.
    """

    op: I64
    group: I64
    kind: I64
    sequence: I64
    source: I64
    target: I64
    sent: I64
    received: I64
    enqueued: I64
    started: I64
    ended: I64
    place: I64
    step: I64
    position: I64
    beside: I64


class Costs(Table, frozen=True, eq=False):
    """What each source line of one rank costs in each stretch of each step. A stretch is the part of a step from one
    collective's launch to the next. Each array has one value for each combination of step, stretch, line and kind of
    cost.

    Attributes:
        step: The index of the step.
        stretch: The number of the stretch within the step. It is the number of the collective that ends the stretch.
        place: The source line, as an index into `Summary.places`. -1 if the line is unknown.
        kind: The kind of cost, as a value of `Cost`.
        time: The time in ns.
        count: The number of kernels, copies or host events.
        blocks: The number of thread blocks of the kernels. 0 if it is unknown.
    """

    step: I64
    stretch: I64
    place: I64
    kind: I64
    time: I64
    count: I64
    blocks: I64


def explains(finding: Finding) -> bool:
    """Returns whether a finding in a rank's trace may explain why the rank is late.

    Returns True for findings about data loading, and for findings at a known source line that cost time, if only once,
    and are not about communication. Communication is not a rank's own work.
    """
    costs = finding.once or not finding.harmless
    at_a_line = finding.where.file is not None and costs and finding.rule != "exposed-comm"
    return at_a_line or finding.rule == LOADING


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What the analysis of a job needs from the trace of one rank. Times are in ns of the rank's own clock, from
    `zero_ns` on, unless an attribute says otherwise.

    Attributes:
        schema: Name and version of the form of a summary.
        version: The version of unstall that made the summary.
        path: The path of the trace.
        size_bytes: The size of the trace in bytes.
        rank: The global number of the rank. -1 if it is unknown.
        rank_by: Where the number comes from: "distributedInfo" (in the trace), "file name" or "nothing".
        world_size: The number of ranks of the job. None if the trace does not say it.
        machine: The name of the machine, if the name of the trace contains it. Otherwise None.
        device: The name of the GPU. None if it is unknown.
        torch: The version of torch. None if it is unknown.
        edits: The edits that were made to the rank's program, as `unstall whatif` takes them.
        zero_ns: The time in the trace from which the other times count, in ns.
        sound: False if something is missing in the trace on which a verdict may rest.
        notes: Sentences about the trace.
        steps_by: How the steps were found.
        unit: "a step", or "the run" if no steps were found.
        step_start: When each step began.
        step_end: When both the host and the device had finished each step.
        mean_step_ns: The mean length of a step.
        replay_step_ns: The step time in a replay of this rank alone, without edits.
        plain_step_ns: The step time that the recorder measured without recording. None if it did not measure this.
        findings: The findings in this trace that may explain why the rank is late. Their gains are not worked out.
        groups: The process groups of the rank.
        places: The source lines. `calls` and `costs` have indices into this tuple.
        calls: The columns of `Calls`, by name.
        costs: The columns of `Costs`, by name.
        instructions: The instructions of the rank's reduced program: columns of `Instructions`, by name.
        ops: The ops of the reduced program: columns of `Ops`, by name.
        arrivals: The columns of `Arrivals`, by name, as arrays with one dimension.
        device_of_stream: For each stream of the program, the index of its device.
        step_starts: For each step, the instruction that begins it.
        step_ends: For each step, the instruction that ends it on the host.
        threads: The number of threads of the program.
        engines: The number of copy engines of the program.
        capacity: The number of launches that fit into a launch queue of the program.
        inferred: Phrases about what the program and the edits assume.
        comm_factors: For each row of `calls`, the length of the collective after the edits, in thousandths of its
            length before.
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
    step_end: Packed
    mean_step_ns: int
    replay_step_ns: int
    plain_step_ns: int | None = None
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
    threads: Annotated[int, msgspec.Meta(ge=0, le=MOST_THREADS)]
    engines: int
    capacity: int
    inferred: tuple[str, ...]
    comm_factors: Packed


def pack(column: np.ndarray) -> Packed:
    """Packs an array of integers of one dimension into bytes."""
    low, high = (int(column.min()), int(column.max())) if column.size else (0, 0)
    kind = next(name for name, most in _TYPES.items() if ~most <= low and high <= most)
    alike = column.size if low == high and 0 < column.size <= _MOST_ALIKE else -1
    return Packed(kind, np.ascontiguousarray(column if alike < 0 else low, dtype=f"<{kind}").tobytes(), alike)


def unpack(packed: Packed) -> I64:
    """Returns a packed array as int64. It is read-only if all of its integers are equal.

    Raises:
        ValueError: The type or the number of bytes is not valid.
    """
    return _unpacked(packed, np.int64)


def constant(value: int, count: int, dtype: DTypeLike = np.int64) -> np.ndarray:
    """Returns a read-only array of `count` equal values. Such arrays share memory: the programs of all ranks have
    several columns of them."""
    return _constant(value, 1 << max(count - 1, 0).bit_length(), np.dtype(dtype))[:count]


@lru_cache(32)
def _constant(value: int, size: int, dtype: np.dtype) -> np.ndarray:
    column = np.full(size, value, dtype)
    column.flags.writeable = False
    return column


def _unpacked(packed: Packed, dtype: DTypeLike | None = None) -> np.ndarray:
    """Returns a packed array as integers of the type `dtype`. By default, in the type in which it is packed: it then
    takes no more memory."""
    if packed.type not in _TYPES or packed.alike > _MOST_ALIKE:
        raise ValueError(f"a column of type {packed.type!r}")
    column = np.frombuffer(packed.data, dtype=f"<{packed.type}")
    if packed.alike >= 0:
        (value,) = column.tolist()
        column = constant(value, packed.alike, dtype or column.dtype)
    elif dtype is not None:
        column = column.astype(dtype)
    return column


def pack_table(table: msgspec.Struct, leave_out: tuple[str, ...] = ()) -> dict[str, Packed]:
    """Packs the arrays of a table. Returns a dict that maps the name of each array to its packed form.

    Args:
        table: A struct whose attributes are arrays of integers.
        leave_out: The names of attributes that are not packed.
    """
    names = [name for name in table.__struct_fields__ if name not in leave_out]
    return {name: pack(getattr(table, name)) for name in names}


def unpack_table(cls: type[_Table], packed: dict[str, Packed], **more: np.ndarray) -> _Table:
    """Returns an instance of `cls` whose attributes are the unpacked arrays.

    Args:
        cls: A struct whose attributes are arrays of integers.
        packed: The packed arrays by name, as `pack_table` returns them.
        **more: Attributes that are not in `packed`.

    Raises:
        ValueError: An array is missing, or the arrays differ in length.
    """
    types = {"I8": np.int8, "I32": np.int32}
    columns: dict[str, Any] = dict(more)
    for name, kind in cls.__annotations__.items():
        if name in more:
            continue
        columns[name] = _unpacked(_named(packed, name), types.get(kind, np.int64))
    if len({len(column) for column in columns.values()} - {0 if more else -1}) > 1:
        raise ValueError(f"the columns of {cls.__name__} differ in length")
    return cls(**columns)


def _named(packed: dict[str, Packed], name: str) -> Packed:
    if name not in packed:
        raise ValueError(f"no column {name}")
    return packed[name]


class Rank(msgspec.Struct, frozen=True, eq=False):
    """One rank of a job: a decoded summary, with its tables and its program.

    Attributes:
        summary: The summary.
        calls: The collectives of the rank.
        costs: What each source line costs.
        program: The reduced program of the rank.
        arrivals: For each op of the program, lower bounds of the time at which the op ends.
        step_start: When each step began, in ns of the rank's clock.
        step_end: When both the host and the device had finished each step, in ns of the rank's clock.
        comm_factors: For each collective, its length after the edits, in thousandths of its length before.
    """

    summary: Summary
    calls: Calls
    costs: Costs
    program: Program
    arrivals: Arrivals
    step_start: I64
    step_end: I64
    comm_factors: I64

    @property
    def number(self) -> int:
        """The global number of the rank. -1 if it is unknown."""
        return self.summary.rank

    @property
    def steps(self) -> int:
        """The number of steps in the rank's trace."""
        return len(self.step_start)


def encode(summary: Summary) -> bytes:
    """Returns a summary as bytes, which `decode` decodes."""
    return zlib.compress(msgspec.msgpack.encode(summary), 1)  # 4 makes it 8 % smaller in 1.6 times the time


def decode(data: bytes) -> Rank:
    """Decodes a summary that `encode` made, and checks it.

    Raises:
        TraceError: The data is not a summary of this version of unstall, or an array is missing or damaged.
    """
    try:
        return _decoded(_opened(data))
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise TraceError(f"not a whole summary of a rank: {error}") from None


def at_path(data: bytes, path: str) -> bytes:
    """Returns the encoded summary of a trace that `decode` decodes, with another path of the trace."""
    return encode(replace(_opened(data), path=path))


def _opened(data: bytes) -> Summary:
    opened = zlib.decompressobj()
    summary = from_msgpack(opened.decompress(data, _MOST_BYTES), Summary)
    if summary.schema != SCHEMA or summary.version != __version__ or opened.unconsumed_tail:
        raise TraceError(f"a rank's summary of another version: {summary.version}")
    return summary


def _decoded(summary: Summary) -> Rank:
    none = {
        "host": constant(-1, len(_unpacked(_named(summary.instructions, "code"))), np.int32),
        "recorded": np.zeros((0, len(Recorded)), dtype=np.int32),
    }
    ops = unpack_table(Ops, summary.ops, device=constant(-1, len(_unpacked(_named(summary.ops, "stream"))), np.int32))
    program = Program(
        instructions=unpack_table(Instructions, summary.instructions, **none),
        ops=ops,
        threads=summary.threads,
        device_of_stream=_unpacked(summary.device_of_stream, np.int32),
        engines=summary.engines,
        capacity=summary.capacity,
        step_starts=unpack(summary.step_starts),
        step_ends=unpack(summary.step_ends),
        thread_of=np.arange(summary.threads, dtype=np.int32),
        notes=summary.inferred,
    )
    arrivals = Arrivals(*(_unpacked(_named(summary.arrivals, name)).reshape(-1, 3) for name in ("host", "device")))
    calls, costs = unpack_table(Calls, summary.calls), unpack_table(Costs, summary.costs)
    rank = Rank(
        replace(summary, calls={}, costs={}, instructions={}, ops={}, arrivals={}),  # all in the tables by now
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
    """Raises ValueError if an index of the summary points outside of its table, if a number is none that the column may
    have, or if the program cannot be replayed."""
    calls, costs, program, summary = rank.calls, rank.costs, rank.program, rank.summary
    lengths = (len(rank.step_end), len(program.step_starts), len(program.step_ends))
    if not rank.steps or set(lengths) != {rank.steps}:
        raise ValueError("its steps differ in number")
    if {len(rank.arrivals.host), len(rank.arrivals.device)} != {len(program.ops)}:
        raise ValueError("its arrivals differ in number from its ops")
    if len(rank.comm_factors) != len(calls):
        raise ValueError("its columns differ in length")
    _check_within(calls.step, -1, rank.steps, "calls.step")
    _check_within(costs.step, 0, rank.steps, "costs.step")
    in_step = np.bincount(calls.step[calls.step >= 0], minlength=rank.steps)
    inside = calls.step >= 0
    within: tuple[tuple[str, I64, int | I64, int | I64], ...] = (
        ("calls.op", calls.op, -1, len(program.ops)),
        ("calls.group", calls.group, 0, len(summary.groups)),
        ("calls.kind", calls.kind, 0, len(Kind)),
        ("calls.place", calls.place, -1, len(summary.places)),
        ("calls.position", calls.position, np.where(inside, 0, -1), np.where(inside, in_step[calls.step], 0)),
        ("costs.place", costs.place, -1, len(summary.places)),
        ("costs.stretch", costs.stretch, 0, in_step[costs.step] + 1),
        ("costs.kind", costs.kind, 0, len(Cost)),
        ("step_starts", program.step_starts, 0, len(program.instructions)),
        ("step_ends", program.step_ends, program.step_starts, len(program.instructions)),
    )
    for name, column, least, end in within:
        _check_within(column, least, end, name)
    if (np.diff(program.step_starts) < 0).any():
        raise ValueError("its steps are not in order")
    check(program)


def _check_within(column: I64, least: int | I64, end: int | I64, name: str) -> None:
    """Raises ValueError if the column has a number that is less than `least`, or not less than `end`."""
    if ((column < least) | (column >= end)).any():
        raise ValueError(f"{name} points outside of its table")
