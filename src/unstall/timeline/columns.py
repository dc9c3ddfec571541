"""A `Timeline`: one recorded run as frozen numpy columns.

Every table is a struct of arrays: one-dimensional columns of equal length, with one row per event.
Times are int64 nanoseconds, counted from time 0 of the run. `Meta.zero_ns` is what the recorder's
clock showed at time 0. `Timeline.strings` has each distinct text once. A column of texts has int32
indices into `strings`. -1 means "none" in a column of indices, and "unknown" in a column of
quantities. Rows refer to rows of other tables by index, never by id. So all joins are done once,
when the timeline is made.

In the comments beside the columns, a *host row* is a row of the table `Host`, a *row of Streams*
one of the table `Streams`, and so on. A *text* is an index into `Timeline.strings`.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

I8: TypeAlias = NDArray[np.int8]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
Bool: TypeAlias = NDArray[np.bool_]
Recorder: TypeAlias = Literal["cupti", "torch", "virtual"]
_DTYPES = {"I8": np.int8, "I32": np.int32, "I64": np.int64, "Bool": np.bool_}
StepMarks: TypeAlias = Literal["optimizer", "loader", "forward", "explicit", "time"]


class HostKind(IntEnum):
    """What the host did in one event. The kinds from LAUNCH to MEMSET put work on a stream. In a
    SYNC, the host waits.
    """

    OP = 0  # an operator: aten::add, an autograd node, a compiled region
    LAUNCH = 1  # one kernel
    GRAPH_LAUNCH = 2  # one call, many device ops
    COPY = 3  # a memcpy call
    MEMSET = 4
    SYNC = 5  # the host waits for a stream, an event or the device
    EVENT_RECORD = 6
    EVENT_WAIT = 7  # a stream is told to wait for an event; the host goes on
    ALLOC = 8  # device or pinned memory is taken from the driver: cudaMalloc, cudaHostAlloc
    FREE = 9  # … or given back: cudaFree, cudaFreeHost
    LOAD = 10  # context creation, module or library loading
    CALL = 11  # any other runtime or driver call
    ANNOTATION = 12  # record_function, ProfilerStep
    PYTHON = 13  # a Python or built-in function's frame
    OVERHEAD = 14  # the recorder at work


class DeviceKind(IntEnum):
    """What the device did in one op."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2


class CopyDirection(IntEnum):
    """The direction of a copy; NONE for an op that is not a copy."""

    NONE = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    PEER_TO_PEER = 4
    HOST_TO_HOST = 5


class HostMemory(IntEnum):
    """The kind of host memory that a copy reads or writes."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2


class WaitKind(IntEnum):
    """What a wait waits for. In a wait of the kind STREAM_EVENT, a stream waits for an event of
    another stream. In all others, the host waits.
    """

    STREAM = 0
    EVENT = 1
    DEVICE = 2
    STREAM_EVENT = 3


class RaceKind(IntEnum):
    """What two accesses do to the same bytes, if nothing ensures their order. The worst kind is first."""

    READ_EARLY = 0  # read before a write has finished
    WRITTEN_TWICE = 1  # written by both
    OVERWRITTEN_EARLY = 2  # overwritten before a read has finished
    REUSED = 3  # freed and allocated again before another stream has finished using it
    TAKEN_EARLY = 4  # used on another stream before the stream that allocated it has finished its earlier use


class FaultKind(IntEnum):
    """What made a device fail: an error that a kernel found in its input, or memory that was full."""

    INDEX = 0  # an index out of bounds
    CLASS = 1  # a class label out of bounds
    PROBABILITY = 2  # a value outside 0 to 1
    WEIGHT = 3  # a weight that is negative, infinite or NaN, or weights that are all 0
    ASSERTION = 4  # an assertion of the program's own
    MEMORY = 5  # an allocation was refused, which ended the program
    OTHER = 6


class Table(msgspec.Struct, frozen=True, eq=False):
    """A struct of arrays: one-dimensional columns of equal length."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    @classmethod
    def none(cls) -> Self:
        """Returns a table without rows."""
        return cls(**{name: np.zeros(0, dtype) for name, dtype in cls.dtypes().items()})

    @classmethod
    def dtypes(cls) -> dict[str, type[np.generic]]:
        """Returns the type of each column, by the column's name."""
        return {name: _DTYPES[of] for name, of in cls.__annotations__.items()}


class Host(Table, frozen=True, eq=False):
    """Events of the host: operators, calls of CUDA, Python frames, annotations.

    They are sorted by thread, then by start, then by end, the latest end first. So a caller comes
    before what it calls.
    """

    kind: I8  # HostKind
    thread: I32  # row of Threads
    start: I64
    end: I64
    name: I32
    correlation: I64
    parent: I32  # host row of the nearest enclosing event on the same thread
    op: I32  # host row of the nearest enclosing OP (an OP's own row)
    forward: I32  # host row of the forward OP whose gradient this OP computes
    stack: I32  # row of Stacks: the innermost Python frame known for the event
    shapes: I32  # text of the operator's input shapes


class Device(Table, frozen=True, eq=False):
    """Ops of all devices, sorted by start."""

    kind: I8  # DeviceKind
    device: I32
    stream: I32  # row of Streams
    start: I64
    end: I64
    name: I32
    correlation: I64
    launch: I32  # host row of the call that put it there; many ops may share a graph launch
    bytes: I64
    direction: I8  # CopyDirection
    host_memory: I8  # HostMemory
    blocks: I32  # thread blocks of a kernel's grid; -1 if not known
    share: I32  # thousandths of the device that a kernel uses; -1 if not known

    def heads(self, *, of_unknown: bool) -> Bool:
        """Returns a mask of the ops that come, on their stream, before the first op whose launch is
        known.

        A stream runs its ops in the order of their launches, so these ops were launched before that
        first one.

        Args:
            of_unknown: Whether the mask has all ops of a stream on which no launch is known. If
                False, it has none of them.
        """
        known = np.flatnonzero(self.launch >= 0)
        first = np.full(int(self.stream.max(initial=-1)) + 1, len(self) if of_unknown else 0)
        streams, at = np.unique(self.stream[known], return_index=True)
        first[streams] = known[at]
        found: Bool = np.arange(len(self)) < first[self.stream]
        return found


class Waits(Table, frozen=True, eq=False):
    """Waits of the host and of streams, one row for each, sorted by the host event that waits (column `host`)."""

    host: I32  # host row of the call: SYNC, or EVENT_WAIT for STREAM_EVENT
    kind: I8  # WaitKind
    stream: I32  # row of Streams: the stream waited for (STREAM), or made to wait (STREAM_EVENT)
    record: I32  # host row of the EVENT_RECORD waited for
    on_stream: I32  # row of Streams: where that event was recorded
    inferred: Bool  # not in the file, but inferred from the order of calls


class Threads(Table, frozen=True, eq=False):
    """The threads of the host, sorted by process id and thread id."""

    process: I32  # text of the process id
    thread: I32  # text of the thread id
    name: I32  # text of its name


class Streams(Table, frozen=True, eq=False):
    """The streams of all devices."""

    device: I32
    stream: I64  # the recorder's own stream id


class Lines(Table, frozen=True, eq=False):
    """Source lines. Each combination of file, line and function occurs once."""

    file: I32  # text; the path as recorded, which torch strips of its `sys.path` prefix
    line: I32  # -1 for built-in functions and modules
    function: I32  # text
    exact: Bool  # the line that runs; else the function's `def` line
    digest: I64  # of the line's text, by which a comparison recognises it; -1 if unknown


class Stacks(Table, frozen=True, eq=False):
    """Call stacks as trees. Each row is a frame, and `parent` is the row of the frame that called
    it. Stacks with the same outer frames share the rows of these frames.
    """

    parent: I32  # row of Stacks, always smaller than its own; -1 at the root
    line: I32  # row of Lines


class Memory(Table, frozen=True, eq=False):
    """Allocations and frees of torch's caching allocator, sorted by time. Empty if they were not recorded."""

    time: I64
    device: I32  # -1 for host memory
    size: I64  # bytes; negative when freed
    allocated: I64  # total after it
    reserved: I64
    address: I64  # of the block that was allocated or freed; -1 if unknown


class Races(Table, frozen=True, eq=False):
    """Data races, one row for each, in the order in which they first occur. Empty if accesses to
    memory were not recorded.
    """

    kind: I8  # RaceKind
    earlier: I32  # host row of the call or operator that was issued first, -1 if unknown
    later: I32
    earlier_stream: I32  # row of Streams that the access runs on; -1: the host itself
    later_stream: I32
    bytes: I64  # bytes that both access
    count: I64  # how often


class Dependencies(Table, frozen=True, eq=False):
    """Pairs of operators or calls whose work runs on devices. The later one needs bytes that the
    earlier one used.

    Each pair occurs once. The table is empty unless all accesses to memory were recorded.
    """

    earlier: I32  # host row of the call or operator that used the bytes first
    later: I32  # host row of the call or operator that needs the bytes
    bytes: I64  # that `later` reads of what `earlier` wrote; 0 if `later` only overwrites bytes that `earlier` used


class Faults(Table, frozen=True, eq=False):
    """Faults of devices, in order of time. After a fault of a kernel, the device computes nothing more."""

    kind: I8  # FaultKind
    call: I32  # host row of the operator or call whose work failed; of captured work, where it was captured
    replay: I32  # host row of the graph launch whose captured work failed; -1 if the work was not captured
    noticed: I32  # host row of the call that raised the error; -1 if none did
    device: I32
    stream: I32  # row of Streams
    iteration: I64  # number of the step, from 1 on, counted over the whole program
    ended: Bool  # the error ended the program
    details: I32  # text: `fault_details.FaultDetails` as JSON


class Held(Table, frozen=True, eq=False):
    """The allocations that filled a device's memory when one more allocation was refused, which
    ended the program.

    There is one row for each operator and call stack that allocated. The row with the most bytes
    comes first.
    """

    call: I32  # host row of a call or operator that allocated it, one of several of the same stack; -1 if unknown
    bytes: I64
    count: I64  # number of allocations


class Collectives(Table, frozen=True, eq=False):
    """What is known about calls of torch.distributed: one row for each op that such a call
    launched.

    Besides the kernel that communicates, a call may launch copies and checks.
    """

    op: I32  # row of Device
    name: I32  # text: torch's name of the operation, such as "allreduce"
    group: I32  # text: the process group's description, or else its name
    ranks: I64  # how many ranks the group has
    sent: I64  # bytes that the call reads on this rank
    received: I64  # bytes that it writes
    members: I32  # text: the ranks of the group as torch writes them: "[0, 1, 2, 3]", long lists with "..."
    sequence: I64  # torch's number of the operation within its group
    source: I64  # of a send or a receive: the rank that sends; of a batch of both, the rank that sends to this one
    target: I64  # … and the rank that receives; of a batch of both, the rank that this one sends to


class Uploads(Table, frozen=True, eq=False):
    """Copies from the host to a device, and which work uses their data. Rows are in the order of
    the calls.

    The table has only copies for which that is known. A graph launch counts as using all memory
    that its ops use.
    """

    call: I32  # host row of the copy call
    content: I32  # a number for the copied bytes: the same for equal bytes; 0 if unknown
    previous: I32  # row of Uploads: the last earlier copy that wrote the same memory; -1 if none
    used_before: I32  # host row of the last earlier call whose work uses the memory that the copy writes; -1 if none
    first_use: I32  # host row of the first later call whose work uses the copied data; -1 if none
    last_use: I32  # host row of the last such call before other data are copied to this memory; -1 if none
    alone: Bool  # whether all of these calls use the copy's stream, and no copy wrote only a part of its memory


class ClockReads(Table, frozen=True, eq=False):
    """The places at which the program read a clock on its main thread, sorted by time. Empty if they are not known."""

    time: I64
    line: I32  # row of Lines
    of_host: Bool  # whether it was the host's clock; if not, it was a device's, by the time between two CUDA events


class StepsLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that the figures leave out."""

    warmup: int = 0  # how many come first and let the program warm up
    proving: int = 0  # in how many `unstall.graphed` checks its CUDA graphs
    apart: int = 0  # how many others are not in the longest stretch of steps without such checks
    loops: int = 0  # how many are of other loops than the longest
    mixed: int = 0  # how many begin with other work than the rest, such as an evaluation
    empty: int = 0  # in how many nothing is launched
    later: int = 0  # how many come after those that were asked for
    outside_percent: int = 0  # of the device's work in the run: how much is in no step, counted or not
    of: int  # the number of all steps, with those that count
    mean_ns: int  # how long a step that does not count takes, from its start to that of the next


class Meta(msgspec.Struct, frozen=True):
    """What is known about a timeline's file, about the program that was recorded, and about flaws of the recording."""

    path: str
    reader: str
    devices: tuple[str, ...] = ()  # model names, by device index
    multiprocessors: tuple[int, ...] = ()  # SMs, by device index; 0 if not known
    torch: str | None = None
    cuda: str | None = None
    rank: int | None = None
    world_size: int | None = None
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of torch.distributed: (name, ranks) of each process group
    zero_ns: int = 0  # the file's clock at time 0
    has_stacks: bool = False
    recorder: Recorder | None = None  # unstall's recorder, if it made the recording
    step_marks: StepMarks | None = None  # what marked the step boundaries for the recorder
    exact_lines: bool = False  # frames have the lines that ran; else the functions' first lines
    frames_at_calls: bool = False  # frames were read at calls to CUDA only, not in between
    plain_step_ns: int | None = None  # step time measured without recording
    plain_steps_ns: tuple[int, int] | None = None  # before and after the recording; its mean is `plain_step_ns`
    reserved_peak_bytes: int | None = None  # the most that torch's allocator reserved of a device up to the end
    known_error: str | None = None  # for a simulated run: how far off its times are on known programs
    step: str | None = None  # name or glob of the annotation around one step, if `unstall run` was told it
    user: tuple[str, ...] = ()  # globs of the files that count as the user's code, as `unstall run` was told
    launches_block: bool = False  # each launch waited until its work was done: CUDA_LAUNCH_BLOCKING=1
    tf32_convolutions: bool = False  # it is known that torch let all convolutions of float32 multiply in TF32
    free_work: bool = False  # work of the host that is not torch's (NumPy, loops) took no time in a simulated run
    free_work_ns: int | None = None  # … how long it took here in a step, if that is known
    free_work_at: str = ""  # … and where most of it was: "at train.py:4"
    shortfall: str | None = None  # what the recording was meant to hold and does not, and what to do: a sentence
    left_out: StepsLeftOut | None = None  # steps of the recording that the file does not have
    notes: tuple[str, ...] = ()  # what was repaired or dropped, one sentence each
    sound: bool = True  # False when a verdict may rest on something missing


class Timeline(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One recorded run, as tables of numpy columns.

    Times are int64 nanoseconds, counted from time 0 of the run. Rows refer to rows of other tables
    by index. The module `unstall.timeline.columns` explains these conventions.

    Several threads may read it at the same time.

    Attributes:
        strings: Each distinct text, once. Columns of texts have indices into `strings`.
        host: Events of the host: operators, calls of CUDA, Python frames, annotations.
        device: Ops: kernels, copies and memsets, sorted by start.
        waits: Waits of the host and of streams, and what each waits for.
        threads: The threads of the host.
        streams: The streams of all devices.
        lines: Source lines, each once.
        stacks: Call stacks, as trees of frames.
        memory: Allocations and frees of torch's caching allocator, if they were recorded.
        races: Data races, if all accesses to memory were recorded.
        faults: Faults of devices, if the failed operator or call is known.
        held: The allocations in a device's memory, if the program ended because it was full.
        collectives: The bytes and the process groups of calls of torch.distributed, if they were
            recorded.
        dependencies: Which work needs the data of which, if all accesses to memory were recorded.
        uploads: Copies from the host to a device, if it is known which work uses their data.
        clock_reads: Where the program read a clock, if that is known.
        meta: What is known about the file and the recorded program.
    """

    strings: tuple[str, ...]
    host: Host
    device: Device
    waits: Waits
    threads: Threads
    streams: Streams
    lines: Lines
    stacks: Stacks
    memory: Memory
    races: Races = msgspec.field(default_factory=Races.none)
    faults: Faults = msgspec.field(default_factory=Faults.none)
    held: Held = msgspec.field(default_factory=Held.none)
    collectives: Collectives = msgspec.field(default_factory=Collectives.none)
    dependencies: Dependencies = msgspec.field(default_factory=Dependencies.none)
    uploads: Uploads = msgspec.field(default_factory=Uploads.none)
    clock_reads: ClockReads = msgspec.field(default_factory=ClockReads.none)
    meta: Meta = msgspec.field(default_factory=lambda: Meta(path="", reader=""))

    def __repr__(self) -> str:
        counts = f"{len(self.host):,} host events, {len(self.device):,} device ops"
        return f"<Timeline of {self.meta.path or 'no file'}: {counts}>"

    def text(self, index: int) -> str:
        """Returns the text with the given index in `strings`; "" for the index -1."""
        return self.strings[index] if index >= 0 else ""

    def line_digests(self) -> dict[str, dict[int, int]]:
        """Returns the digests of source lines, as far as they are known: `{file: {line number:
        digest}}`.

        A digest is a number made from the text of a line. It identifies the line even if the line
        was moved.
        """
        lines = self.lines
        found: dict[str, dict[int, int]] = {}
        for row in np.flatnonzero(lines.digest >= 0).tolist():
            found.setdefault(self.text(int(lines.file[row])), {})[int(lines.line[row])] = int(lines.digest[row])
        return found

    @property
    def queued_before(self) -> Bool:
        """A mask of the ops that are known to have been launched before the recording began.

        On its stream, such an op comes before the first op whose launch was recorded. If a stream
        has ops but no recorded launch, the mask has all of them. But if `meta.sound` is False,
        launches may have been lost: then it has none of them.
        """
        return self.device.heads(of_unknown=self.meta.sound)

    def with_meta(self, **changes: Any) -> Timeline:
        """Returns the timeline with other facts: the named fields of its `meta` change."""
        return replace(self, meta=replace(self.meta, **changes))

    def save(self, path: str | Path) -> None:
        """Writes the timeline to a compact file. `unstall.load` reads this file far faster than the trace.

        Args:
            path: The file to write. An existing file is replaced only when the new file is complete.

        Raises:
            UsageError: The file cannot be written.
        """
        # Imported here, since the store imports the tables of this module.
        from unstall.timeline.store import save

        save(self, Path(path))

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by name. The names are the attributes of the timeline except `strings` and `meta`."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("strings", "meta")}
