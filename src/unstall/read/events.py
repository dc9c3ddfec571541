"""Defines the events of a trace file as columns. The readers of files make these columns. Only
`assemble` connects the events with each other.

There is one row per event with a start and a duration (phase "X"), in file order. -1 means that a
value is not in the file.
"""

from __future__ import annotations

import msgspec

from unstall.read.clock_reads import DescribedReads
from unstall.read.collectives import Described
from unstall.read.dependencies import DescribedDependencies
from unstall.read.faults import DescribesFaults
from unstall.read.races import DescribedRace
from unstall.read.uploads import DescribedUpload
from unstall.timeline.columns import I32, I64, Meta


class Events(msgspec.Struct):
    """The events of a trace file as columns, one row per event. Columns of texts hold indices into
    `strings`.

    Columns have equal length, unless a comment says otherwise.
    """

    strings: list[str]
    category: I32  # text, as the file spells it
    name: I32  # text
    start: I64  # ns since `meta.zero_ns`
    duration: I64  # ns, never negative
    process: I32  # text
    thread: I32  # text
    external: I64  # "External id": the operator's id, on calls and device ops too
    correlation: I64
    device: I32  # only of device ops and waits, like the next three
    stream: I64
    bytes: I64
    blocks: I32  # thread blocks of a kernel's grid
    share: I32  # thousandths of the device that a kernel uses
    sequence: I64  # autograd's sequence number; only of operators and annotations, like the next three
    forward_thread: I64  # "Fwd thread id": greater than 0 on backward operators
    stack: I32  # text: "Call stack", innermost frame first, ";" between frames
    shapes: I32  # text: "Input Dims" as JSON

    # One row per "cuda_sync" event: its index into the columns above, and the fields of the wait.
    sync_row: I64
    sync_record: I64  # correlation id of the record call
    sync_event: I64  # the event's id
    sync_on_stream: I64

    # One row per start or end of a flow arrow between a forward operator and its backward operator.
    flow_id: I64
    flow_is_end: I32
    flow_thread: I32  # text
    flow_time: I64

    # "[memory]" instants.
    memory_time: I64
    memory_device: I32
    memory_size: I64
    memory_allocated: I64
    memory_reserved: I64
    memory_address: I64

    meta: Meta
    thread_names: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)  # (process, thread) → name
    gpus: set[str] = msgspec.field(default_factory=set)  # processes that the file labels as GPUs
    dependencies: DescribedDependencies = msgspec.field(default_factory=DescribedDependencies)
    races: list[DescribedRace] = msgspec.field(default_factory=list)
    uploads: list[DescribedUpload] = msgspec.field(default_factory=list)
    clock_reads: DescribedReads = msgspec.field(default_factory=DescribedReads)
    faults: DescribesFaults = msgspec.field(default_factory=DescribesFaults)
    digests: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)  # of source lines, by file and line
    collectives: Described = msgspec.field(default_factory=Described.none)
