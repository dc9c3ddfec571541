"""The fields of Kineto's Chrome trace events that unstall uses.

Keys differ by version: torch 1.8 wrote "external id", later versions "External id". The second
profiler of torch 2.15 (`torch.profiler.CuspyConfig`) writes the kind of a copy and of its memory in
fields of their own; Kineto writes them in the event's name. The fields here have the same order as
in traces: msgspec then finds them faster.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, Union

from msgspec import Meta, Raw, Struct, defstruct, field

Number = TypeVar("Number", int, float, Decimal)
Id: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
NO_JSON = Raw(b"")


class Args(Struct, gc=False, frozen=True):
    """The member "args" of an event in a trace file, for events with a start and a duration. Has
    only those fields that unstall uses. A field that the event lacks is -1, "" or NO_JSON.
    """

    external: Id = field(default=-1, name="External id")
    stack: str = field(default="", name="Call stack")
    shapes: Raw = field(default=NO_JSON, name="Input Dims")
    sync_on_stream: Id = field(default=-1, name="wait_on_stream")
    sync_record: Id = field(default=-1, name="wait_on_cuda_event_record_corr_id")
    sync_event: Id = field(default=-1, name="wait_on_cuda_event_id")
    device: Id = -1
    stream: Id = -1
    correlation: Id = -1
    grid: Raw = NO_JSON  # of a kernel: [x, y, z] in thread blocks
    share: Id = field(default=-1, name="device share")  # of a kernel of the virtual GPU, in thousandths
    old_external: Id = field(default=-1, name="external id")
    bytes: Id = -1
    copy_kind: int | str = field(default="", name="copy kind")  # a text; CUPTI's number if the recorder has no text
    copied_from: int | str = field(default="", name="src kind")
    copied_to: int | str = field(default="", name="dst kind")
    memory_kind: int | str = field(default="", name="memory kind")  # of a memset
    forward_thread: Id = field(default=-1, name="Fwd thread id")
    sequence: Id = field(default=-1, name="Sequence number")
    old_shapes: Raw = field(default=NO_JSON, name="Input dims")
    # Of `record_param_comms`, and of the kernels that it launches. As JSON: read/collectives.py reads distinct ones.
    collective: Raw = field(default=NO_JSON, name="Collective name")
    dtype: Raw = field(default=NO_JSON, name="dtype")
    sent: Raw = field(default=NO_JSON, name="In msg nelems")
    received: Raw = field(default=NO_JSON, name="Out msg nelems")
    ranks: Raw = field(default=NO_JSON, name="Group size")
    group: Raw = field(default=NO_JSON, name="Process Group Name")
    group_is: Raw = field(default=NO_JSON, name="Process Group Description")
    members: Raw = field(default=NO_JSON, name="Process Group Ranks")
    sequence_in_group: Raw = field(default=NO_JSON, name="Seq")
    source: Raw = field(default=NO_JSON, name="Src Rank")
    target: Raw = field(default=NO_JSON, name="Dst Rank")
    original_stream: Id = -1  # the stream of an op that is shown on another lane; `stream` is then the lane


class Complete(Struct, Generic[Number], gc=False, frozen=True, tag_field="ph", tag="X"):
    """An event in a trace file with a start and a duration (phase "X")."""

    category: str = field(default="", name="cat")
    name: str = ""
    process: int | str = field(default="", name="pid")
    thread: int | str = field(default="", name="tid")
    ts: Number | None = None
    dur: Number | None = None
    args: Args = Args()


class Arrow(Struct, Generic[Number], gc=False, frozen=True, tag_field="ph", tag="s"):
    """The start of a flow arrow (phase "s") in a trace file. A flow arrow leads from one event to another."""

    id: Id = -1
    thread: int | str = field(default="", name="tid")
    ts: Number | None = None
    category: str = field(default="", name="cat")


class ArrowEnd(Arrow[Number], Generic[Number], gc=False, frozen=True, tag_field="ph", tag="f"):
    """The end of a flow arrow (phase "f") in a trace file. A flow arrow leads from one event to another."""


class MemoryArgs(Struct, gc=False, frozen=True):
    """The member "args" of a "[memory]" event in a trace file: how many bytes were allocated or
    freed, how many bytes are allocated and reserved afterwards, and where the block begins.
    """

    device_type: Id = field(default=0, name="Device Type")
    device: Id = field(default=-1, name="Device Id")
    size: Id = field(default=0, name="Bytes")
    allocated: Id = field(default=-1, name="Total Allocated")
    reserved: Id = field(default=-1, name="Total Reserved")
    address: Id = field(default=-1, name="Addr")


class Instant(Struct, Generic[Number], gc=False, frozen=True, tag_field="ph", tag="i"):
    """An event in a trace file at one moment (phase "i"). Of these, only events with the name "[memory]" are used."""

    name: str = ""
    ts: Number | None = None
    args: MemoryArgs = MemoryArgs()


class LabelArgs(Struct, gc=False, frozen=True):
    """The member "args" of an event in a trace file that names or describes a process or a thread.
    It has the name of the process or the thread, or a text about it. A field that the event lacks
    is "".
    """

    name: str = ""
    labels: str = ""


class Label(Struct, gc=False, frozen=True, tag_field="ph", tag="M"):
    """An event in a trace file that names or describes a process or a thread (phase "M")."""

    name: str = ""
    process: int | str = field(default="", name="pid")
    thread: int | str = field(default="", name="tid")
    args: LabelArgs = LabelArgs()


class Other(Struct, gc=False, frozen=True):
    """An event in a trace file, of a phase that unstall does not use."""


_OTHERS = [
    defstruct(f"_Other{ord(phase)}", [], bases=(Other,), tag_field="ph", tag=phase, gc=False, frozen=True)
    for phase in "BEICbenSTptFPNODVvRc(),"
]
Event: TypeAlias = Complete[Any] | Arrow[Any] | Instant[Any] | Label | Other


def event_type(number: Any) -> Any:
    """Returns a union of the types of a trace file's events, one type per phase, for a msgspec
    decoder. The member "ph" of an event, its phase, tells the decoder which type to use. `number`
    is the type of times.
    """
    timed: list[Any] = [Complete, Arrow, ArrowEnd, Instant]
    types = (*(phase[number] for phase in timed), Label, *_OTHERS)
    return Union[types]  # noqa: UP007 - all at once: to join one after the other takes several times as long
