"""Reads what torch.distributed tells of each collective: the operation, the group of ranks and the
sizes. A trace has these in its `record_param_comms` events.

Kineto also writes these fields for the kernel (libkineto/src/output_json.cpp), unless a CUDA graph
launched the kernel.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.read.stacks import Interner
from unstall.timeline.columns import I32, I64, Collectives, Device, Host
from unstall.timeline.grouping import by_text

DESCRIBED = (
    *("collective", "dtype", "sent", "received", "ranks", "group", "group_is"),
    *("members", "sequence_in_group", "source", "target"),
)
"""The fields of `Args` that `Described` has as columns."""

# Bytes of an element, by names of c10::ScalarType (c10/core/ScalarType.h).
_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Float8_e5m2", "Float8_e4m3fn"), 1),
    **dict.fromkeys(("Float8_e5m2fnuz", "Float8_e4m3fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "QInt32", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "Double", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
_MOST = 2**40  # elements, or ranks: a larger number is damage
_NO_DESCRIPTION = ("", "undefined")  # c10d's description of a group that was given none


class Described(msgspec.Struct):
    """What a trace file tells of collectives: a table with one row per event that has the field
    "Collective name".

    The column `row` has the event's row in `Events`. All other columns have indices of texts. A
    text is the field's JSON as in the trace file, or "" if the event lacks the field.
    """

    row: I64  # index into the columns of `Events`
    collective: I32
    dtype: I32
    sent: I32  # elements, as are those received
    received: I32
    ranks: I32
    group: I32
    group_is: I32
    members: I32
    sequence_in_group: I32
    source: I32
    target: I32

    @classmethod
    def none(cls) -> Described:
        empty = np.zeros(0, np.int32)
        return cls(np.zeros(0, np.int64), **dict.fromkeys(DESCRIBED, empty))


def collectives_of(
    told: Described, host: Host, device: Device, host_rows: I64, device_rows: I64, intern: Interner
) -> Collectives:
    """Returns the table of collectives of a timeline: for each op that is part of a collective,
    what the trace file tells of the collective.

    If the trace file tells nothing for the op itself, the op gets what it tells for the operator
    that launched the op.

    Args:
        told: What the trace file tells.
        host: The host events of the timeline.
        device: The ops of the timeline.
        host_rows: The row in `Events` of each row of `host`.
        device_rows: The row in `Events` of each row of `device`.
        intern: Gives the index of a text.
    """
    if not len(told.row):
        return Collectives.none()
    of_event = np.full(1 + max(int(told.row.max()), int(host_rows.max(initial=0)), int(device_rows.max(initial=0))), -1)
    of_event[told.row] = np.arange(len(told.row))
    of_host, at = of_event[host_rows], of_event[device_rows]
    operator = np.where(device.launch >= 0, host.op[np.maximum(device.launch, 0)], -1) if len(host) else device.launch
    inherits = np.flatnonzero((at < 0) & (operator >= 0))
    at[inherits] = of_host[operator[inherits]]
    ops = np.flatnonzero(at >= 0)
    at = at[ops]

    def texts(column: I32) -> I32:
        return by_text(column[at], lambda index: _text(intern, index)).astype(np.int32)

    def numbers(column: I32) -> I64:
        return by_text(column[at], lambda index: _number(intern, index))

    element = by_text(told.dtype[at], lambda index: _BYTES.get(str(_value(intern, index)), 0))
    group, group_is = texts(told.group), texts(told.group_is)
    undescribed = by_text(group_is, lambda index: index < 0 or intern.texts[index] in _NO_DESCRIPTION) == 1
    return Collectives(
        op=ops.astype(np.int32),
        name=texts(told.collective),
        group=np.where(undescribed, group, group_is).astype(np.int32),
        ranks=numbers(told.ranks),
        sent=_bytes(numbers(told.sent), element),
        received=_bytes(numbers(told.received), element),
        members=texts(told.members),
        sequence=numbers(told.sequence_in_group),
        source=numbers(told.source),
        target=numbers(told.target),
    )


def _bytes(elements: I64, element: I64) -> I64:
    """Returns the number of bytes: `elements`, the number of elements, times `element`, the bytes
    of one element.

    Returns -1 if one of the two is 0. torch writes 0 elements if it does not know the number.
    """
    return np.where((elements > 0) & (element > 0), elements * element, -1)


def _value(intern: Interner, index: int) -> object:
    try:
        return msgspec.json.decode(intern.texts[index]) if index >= 0 else None
    except msgspec.DecodeError:
        return None


def _text(intern: Interner, index: int) -> int:
    value = _value(intern, index)
    known = isinstance(value, str | int | list)  # the ranks of a group may be a list, or a text of it
    return intern(str(value)) if known else intern("")


def _number(intern: Interner, index: int) -> int:
    value = _value(intern, index)
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    return int(value) if known else -1  # type: ignore[call-overload]
