"""What a reader hands to `assemble`: events as the file tells them, in columns, before any join.

One row a complete ("X") event, in file order. -1 stands for "not in the file".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unstall.read.races import DescribedRace
from unstall.timeline.columns import I32, I64, Meta


@dataclass(slots=True)
class Events:
    """Columns of one length. Text columns hold indices into `strings`."""

    strings: list[str]
    category: I32  # text, as the file spells it
    name: I32  # text
    start: I64  # ns since `meta.zero_ns`
    duration: I64  # ns, never negative
    process: I32  # text
    thread: I32  # text
    external: I64  # "External id": the operator's id, on calls and device ops too
    correlation: I64
    device: I32  # of device ops and waits only, as are the next two
    stream: I64
    bytes: I64
    sequence: I64  # autograd's sequence number; of operators and annotations only, as all below
    forward_thread: I64  # "Fwd thread id": greater than 0 on backward operators
    stack: I32  # text: "Call stack", innermost frame first, ";" between frames
    shapes: I32  # text: "Input Dims" as JSON

    # Rows of "cuda_sync" events only: indices into the columns above, with what the file says of the wait.
    sync_row: I64
    sync_record: I64  # correlation id of the record call
    sync_event: I64  # the event's id
    sync_on_stream: I64

    # Flow arrows between a forward operator and its backward one: (id, process, thread, time), starts and ends.
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

    meta: Meta
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)  # (process, thread) → name
    races: list[DescribedRace] = field(default_factory=list)
