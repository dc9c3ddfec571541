"""Reads the faults in a trace's metadata into a `Faults` table. The metadata has the faults under the key "unstall".

A call is identified by its correlation id, an operator by its external id, a stream by its device and number.
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
    """One row of `Faults` as the trace writes it, with the ids of the trace. -1 means that an id is unknown."""

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
    """One row of `Held` as the trace writes it: memory that one call or operator held."""

    call: _Number
    bytes: _Count
    count: _Count


class DescribesFaults(Struct):
    """The faults that a trace of a virtual GPU describes.

    If a GPU's memory was full, `held` lists the calls and operators that held this memory.
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
    """Converts faults that a trace describes to tables. Replaces ids of calls and streams by rows of the timeline.

    Args:
        told: The descriptions in the trace.
        kind: The HostKind of each host row.
        correlation: The correlation id of each host row.
        external: The external id of each host row.
        streams: The streams of the timeline.
        text: Returns the index of a text.

    Returns:
        (faults, held): the faults, and, if a GPU's memory was full, the calls and operators that held this memory.
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
