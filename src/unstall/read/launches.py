"""Finds the host call that launched each op of the device. One call may launch many ops: the launch
of a CUDA graph does.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.read.events import Events
from unstall.timeline.columns import I8, I32, I64, Bool, Device, Host, HostKind
from unstall.timeline.grouping import distinct, is_in, is_one_of

_SKEW_NS = 1_000  # older recorders write whole microseconds
_WORK = (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH, HostKind.COPY, HostKind.MEMSET)


class Joined(msgspec.Struct, frozen=True):
    """The result of `join_launches`.

    Attributes:
        device: The ops of the device. Their column `launch` says which host call launched each op.
        damage: A note for each inconsistency of the trace file.
        note: A note if some ops were launched before the recording began, and None if not. This is
            not an inconsistency.
    """

    device: Device
    damage: list[str]  # one note per inconsistency
    note: str | None  # on ops launched before the recording, which is not damage


def ids_of_calls(events: Events, host_kind: I8, is_op: Bool) -> I64:
    """Returns the correlation id of each event.

    A trace may have none, because it was converted or because an older recorder wrote it, while
    each call that launches shares its "External id" with the op it launched. This id then stands
    for the correlation id. Usually it does not: it is an operator's, and several calls share it.

    Args:
        events: The events of a trace file.
        host_kind: The `HostKind` of each event; negative if it is no event of the host.
        is_op: For each event, whether it is an op of the device.
    """
    is_call = is_one_of(host_kind, _WORK)
    ids, calls = events.external[is_op], events.external[is_call]
    if (events.correlation[is_op | is_call] >= 0).any() or (ids < 0).any() or (calls < 0).any():
        return events.correlation
    if len(np.unique(calls)) < len(calls) or len(np.unique(ids)) < len(ids):
        return events.correlation
    return np.where(is_op | is_call, events.external, events.correlation)


def join_launches(host: Host, device: Device, recorded: Bool, *, complete: bool) -> Joined:
    """Finds the host call that launched each op of the device.

    Args:
        host: The host events.
        device: The ops, whose `launch` is not known yet.
        recorded: For each op, whether the trace file has the operator that launched the op.
        complete: Whether every op that was launched during the recording has a correlation id, and
            no other op has one.
    """
    damage: list[str] = []
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL) & (host.correlation >= 0))
    can_launch = is_one_of(host.kind[calls], _WORK)
    # A call that cannot launch never wins over one that can.
    known = is_in(host.correlation[calls], host.correlation[calls[can_launch]])
    calls = calls[can_launch | ~known]
    launch = _join(host, device, calls)
    device = replace(device, launch=launch)
    early = _launched_before(host, device, calls, complete=complete) & ~recorded
    note = None
    if early.any() and not complete:
        note = f"{early.sum():,} of {len(device):,} device ops were launched before the recording began"
    lost = int((launch < 0).sum() - early.sum())
    if lost:
        damage.append(
            f"{lost:,} of {len(device):,} device ops have no host call in the file: "
            "recording began after they were launched, or the recorder dropped the calls"
        )
    joined = np.flatnonzero(launch >= 0)
    skewed = int((device.start[joined] < host.start[launch[joined]] - _SKEW_NS).sum())
    if skewed:
        damage.append(
            f"{skewed:,} device ops start before the call that launched them: "
            "the clocks of host and device are not aligned"
        )
    return Joined(device, damage, note)


def _launched_before(host: Host, device: Device, calls: I64, *, complete: bool) -> Bool:
    """Returns, for each op, whether it was certainly launched before the recording began.

    Such an op ran before all ops of its stream whose launch is known. If `complete` is set, it also
    has no correlation id. If `complete` is not set, its correlation id is smaller than that of
    every call, because CUPTI's ids ascend.
    """
    if complete:
        told = device.correlation < 0
    else:
        first = int(host.correlation[calls].min()) if len(calls) else 0
        told = (device.correlation >= 0) & (device.correlation < first)
    chosen: Bool = told & (device.launch < 0) & device.heads(of_unknown=True)
    return chosen


def _join(host: Host, device: Device, calls: I64) -> I32:
    """Returns, for each op, the row in `host` of the call that launched it, found by correlation
    id, or -1.

    If several processes in one file use the same ids, the n-th op with an id belongs to the n-th
    call with this id.
    """
    if not len(calls):
        return np.full(len(device), -1, dtype=np.int32)
    calls = calls[np.lexsort((host.start[calls], host.correlation[calls]))]
    ids = host.correlation[calls]
    first = np.searchsorted(ids, device.correlation, side="left")
    count = np.searchsorted(ids, device.correlation, side="right") - first
    found = (count > 0) & (device.correlation >= 0)
    launch = np.where(found, calls[np.minimum(first, len(calls) - 1)], -1)
    shared = np.flatnonzero(found & (count > 1))
    if len(shared):
        launch[shared] = calls[_last_before(host, device, calls, shared, first[shared])]
        for unit in (np.arange(len(shared)), _by_stream(device, shared)):
            number = _in_order(device, shared, unit, count[shared])
            call = calls[first[shared] + np.maximum(number, 0)]
            fits = (number >= 0) & (host.start[call] <= device.start[shared] + _SKEW_NS)
            launch[shared[fits]] = call[fits]
    return launch.astype(np.int32)


def _last_before(host: Host, device: Device, calls: I64, ops: I64, first: I64) -> I64:
    """Returns, for each op in `ops`, the index in `calls` of the last call that has the op's
    correlation id and begins before the op.

    If no call with this id begins before the op, the result is `first` of the op: the index of the
    first call with this id.
    """
    times, at = distinct(np.concatenate((host.start[calls], device.start[ops])))
    _, identity = distinct(np.concatenate((host.correlation[calls], device.correlation[ops])))
    keys = identity * len(times) + at
    return np.maximum(np.searchsorted(keys[: len(calls)], keys[len(calls) :], side="right") - 1, first)


def _by_stream(device: Device, ops: I64) -> I64:
    """Returns a number for each op in `ops`. Ops that have the same correlation id and the same
    stream get the same number. One launch of a CUDA graph launched them.
    """
    _, stream = distinct(device.stream[ops])
    _, identity = distinct(device.correlation[ops])
    return distinct(identity * (int(stream.max()) + 1) + stream)[1]


def _in_order(device: Device, ops: I64, unit: I64, calls: I64) -> I64:
    """Returns, for each op, which of the calls with the op's correlation id launched it: 0 for the
    first call, and so on.

    `unit` puts the ops into sets. The sets with the same correlation id are counted by start time,
    and the n-th set belongs to the n-th call with this id. If there are more or fewer sets than
    calls, the result is -1.

    Args:
        device: The ops of the device.
        ops: The rows in `device` of the ops in question.
        unit: For each op, the number of its set. One call launched all ops of a set.
        calls: For each op, how many calls have its correlation id.
    """
    units = int(unit.max()) + 1
    start = np.full(units, np.iinfo(np.int64).max)
    np.minimum.at(start, unit, device.start[ops])
    identity = np.zeros(units, dtype=np.int64)
    identity[unit] = device.correlation[ops]
    order = np.lexsort((start, identity))
    opens = np.append(True, np.diff(identity[order]) != 0)
    first = np.flatnonzero(opens)[np.cumsum(opens) - 1]
    rank = np.zeros(units, dtype=np.int64)
    rank[order] = np.arange(units) - first
    size = np.zeros(units, dtype=np.int64)
    size[order] = np.diff(np.append(np.flatnonzero(opens), units))[np.cumsum(opens) - 1]
    return np.where(size[unit] == calls, rank[unit], -1)
