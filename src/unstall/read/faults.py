"""Makes a `Faults` table of a trace's metadata (the JSON members beside its list of events). The
metadata of a trace of a virtual GPU tells, under the key "unstall", which work failed on the
device.

The metadata identifies a call by its correlation id, an operator by its external id, a stream by
its device and number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from unstall.read.row_ids import rows_by_id, rows_of_streams
from unstall.timeline.columns import I8, I64, FaultKind, Faults, Held, Streams
from unstall.timeline.fault_details import FaultDetails, packed
from unstall.timeline.limits import MOST_FAULTS, MOST_HELD

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Device: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_KINDS = {kind.name.lower(): kind for kind in FaultKind}


class DescribedFault(Struct, frozen=True):
    """One row of the table `Faults` (work that failed on the device) as a trace file has it. Calls,
    operators and streams are given by their ids in the file. -1 means that an id is unknown.
    """

    kind: Literal["index", "class", "probability", "weight", "assertion", "memory", "other"]
    call: _Number
    replay: _Number
    noticed: _Number
    device: _Device
    stream: _Number
    iteration: _Number
    ended: bool
    details: FaultDetails


class DescribedMemory(Struct, frozen=True):
    """One row of the table `Held` as a trace file has it: how much memory one call or operator held
    when the memory of a GPU was full.
    """

    call: _Number
    bytes: _Count
    count: _Count


class DescribesFaults(Struct):
    """The fields of a trace file, under its key "unstall", that tell which work failed on the
    device.

    If the memory of a GPU was full, `held` tells which calls and operators held it.
    """

    faults: list[DescribedFault] = []
    held: list[DescribedMemory] = []


def faults_of(
    told: DescribesFaults,
    kind: I8,
    correlation: I64,
    external: I64,
    streams: Streams,
    text: Callable[[str], int],
) -> tuple[Faults, Held]:
    """Returns tables of the faults (work that failed on the device) that a trace file tells.
    Replaces ids of calls, operators and streams by rows of the timeline.

    Args:
        told: The faults as the trace file tells them.
        kind: The HostKind of each row of `timeline.host`.
        correlation: The correlation id of each row of `timeline.host`.
        external: The external id of each row of `timeline.host`.
        streams: The streams of the timeline.
        text: Returns the index of a text in the timeline's strings.

    Returns:
        `(faults, held)`: the faults, and a table of the calls and operators that held the memory of
        a GPU when it was full. `held` is empty if no memory was full.
    """
    faults, held = told.faults[:MOST_FAULTS], told.held[:MOST_HELD]
    if not faults:
        return Faults.none(), Held.none()
    row_of, stream_of = rows_by_id(kind, correlation, external), rows_of_streams(streams)
    table = Faults(
        kind=np.array([_KINDS[fault.kind] for fault in faults], np.int8),
        call=np.array([row_of.get(fault.call, -1) for fault in faults], np.int32),
        replay=np.array([row_of.get(fault.replay, -1) for fault in faults], np.int32),
        noticed=np.array([row_of.get(fault.noticed, -1) for fault in faults], np.int32),
        device=np.array([fault.device for fault in faults], np.int32),
        stream=np.array([stream_of.get((fault.device, fault.stream), -1) for fault in faults], np.int32),
        iteration=np.array([fault.iteration for fault in faults], np.int64),
        ended=np.array([fault.ended for fault in faults], np.bool_),
        details=np.array([text(packed(fault.details)) for fault in faults], np.int32),
    )
    parts = Held(
        call=np.array([row_of.get(part.call, -1) for part in held], np.int32),
        bytes=np.array([part.bytes for part in held], np.int64),
        count=np.array([part.count for part in held], np.int64),
    )
    return table, parts
