"""Compares the copies of two runs by source line, operator and direction.

Finds copies that are new or gone, and copies that changed: for example, from pageable to pinned
host memory, or from blocking to non-blocking.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unstall.changes.groups import Grouped, common, largest_first, present
from unstall.changes.match import unique_pairs
from unstall.changes.result import Became, CopyChange, Count, Size
from unstall.changes.sides import ComparedRun, Sides
from unstall.changes.spread import Sums, count, time
from unstall.locate.operations import operations
from unstall.result import Where
from unstall.timeline.columns import I64, Bool, CopyDirection, DeviceKind, HostMemory
from unstall.timeline.grouping import distinct

_VALUE_BYTES = 16  # size of the largest scalar, a complex128
_LARGE_BYTES = 1 << 20  # copies of the same number of bytes per step, if at least this, are the same copies
_DIRECTIONS = {
    CopyDirection.NONE: "unknown",
    CopyDirection.HOST_TO_DEVICE: "host to device",
    CopyDirection.DEVICE_TO_HOST: "device to host",
    CopyDirection.DEVICE_TO_DEVICE: "device to device",
    CopyDirection.PEER_TO_PEER: "device to other device",
    CopyDirection.HOST_TO_HOST: "host to host",
}


def copies(sides: Sides) -> tuple[tuple[CopyChange, ...], int]:
    """Returns `(changes, unchanged)`: the changed groups of copies, largest change first; the
    number of unchanged groups. A group has the copies of one source line, operator and direction.

    Groups of the two runs are matched by line and operator. Groups without a match are then matched
    by line alone. After that, they are matched by operator and size, at any line. Finally, groups
    of large copies are matched by size alone. Copies of a single value are left out, because they
    are part of the waits of `.item()` and similar calls.
    """
    sets = [_copies(side, len(sides.texts)) for side in (sides.a, sides.b)]
    group_a, group_b, groups = common(sets[0].key, sets[1].key)
    group_b = _pair_the_rest(sides, sets, group_a, group_b)
    tables = [
        _tables(Grouped(group, own.step, groups, side.steps), own, side)
        for side, own, group in zip((sides.a, sides.b), sets, (group_a, group_b), strict=True)
    ]
    used = np.unique(np.concatenate((group_a, group_b))).tolist()
    return largest_first((_change(sides, sets, tables, i) for i in used), _order)


@dataclass(frozen=True, eq=False, slots=True)
class _Copies:
    """The copies of one run. Each column has one element per copy."""

    row: I64  # of device
    call: I64  # host row, -1 if unknown
    step: I64
    place: I64
    label: I64  # of the operator or call, -1 for none
    direction: I64
    key: I64  # of place, operator and direction
    blocking: Bool


@dataclass(frozen=True, eq=False, slots=True)
class _Tables:
    first: I64  # by group: its first element of the run's copies, or -1
    count: Sums
    bytes: Sums
    taken: Sums
    pageable: Sums
    pinned: Sums
    blocking: Sums


def _copies(side: ComparedRun, texts: int) -> _Copies:
    device = side.run.timeline.device
    is_copy = device.kind[side.ops] == DeviceKind.COPY
    size, direction = device.bytes[side.ops], device.direction[side.ops]
    is_value = (direction == CopyDirection.DEVICE_TO_HOST) & (size >= 0) & (size <= _VALUE_BYTES)
    chosen = np.flatnonzero(is_copy & ~is_value)
    rows = side.ops[chosen]
    call = device.launch[rows].astype(np.int64)
    towards = device.direction[rows].astype(np.int64)
    label = np.where(call >= 0, side.label[np.maximum(call, 0)], -1) if len(side.label) else call
    place = side.op_place[chosen]
    return _Copies(
        row=rows,
        call=call,
        step=side.op_step[chosen],
        place=place,
        label=label,
        direction=towards,
        key=(place * (texts + 1) + label + 1) * len(_DIRECTIONS) + towards,
        blocking=_blocking(side, call),
    )


def _blocking(side: ComparedRun, call: I64) -> Bool:
    """Returns a mask of the copies for which the host waited.

    The host may wait in the call that makes the copy, in a wait for the copy, or in another wait of the same operation.
    """
    waits, timeline = side.run.activity.waits, side.run.timeline
    operation = operations(timeline, timeline.host.op)
    waiting = operation[waits.row]
    own = np.where(call >= 0, operation[np.maximum(call, 0)], -1) if len(operation) else call
    known: Bool = np.isin(call, waits.row) | np.isin(call, waits.upload)
    return (call >= 0) & (known | ((own >= 0) & np.isin(own, waiting)))


def _pair_the_rest(sides: Sides, sets: list[_Copies], group_a: I64, group_b: I64) -> I64:
    """Matches the groups of B that have no match yet. Then returns the group number of each copy of B.

    Only groups of A without a match are considered. A group of B gets the number of the group of A that is most similar
    to it.
    """
    alone_a, alone_b = np.setdiff1d(group_a, group_b), np.setdiff1d(group_b, group_a)
    renumber = np.arange(1 + max(int(group_a.max(initial=0)), int(group_b.max(initial=0))))
    described_a = _described(sides.a, sets[0], group_a, alone_a)
    described_b = _described(sides.b, sets[1], group_b, alone_b)
    for like in (_at_its_place, _by_operator, _by_size):
        found = unique_pairs(
            {i: like(of) for i, of in described_a.items()}, {i: like(of) for i, of in described_b.items()}
        )
        for i, j in found:
            renumber[j] = i
            del described_a[i], described_b[j]
    return renumber[group_b]


class _Described(NamedTuple):
    place: int
    direction: int
    label: int
    size: int  # bytes per step


def _at_its_place(of: _Described) -> Hashable:
    return of.place, of.direction


def _by_operator(of: _Described) -> Hashable:
    return of.direction, of.label, of.size


def _by_size(of: _Described) -> Hashable:
    return (of.direction, of.size) if of.size >= _LARGE_BYTES else None


def _described(side: ComparedRun, own: _Copies, group: I64, wanted: I64) -> dict[int, _Described]:
    groups, which = distinct(group)
    size = np.zeros(len(groups), dtype=np.int64)
    np.add.at(size, which, np.maximum(side.run.timeline.device.bytes[own.row], 0))
    first = np.full(len(groups), -1, dtype=np.int64)
    first[which[::-1]] = np.arange(len(which))[::-1]
    described: dict[int, _Described] = {}
    for i in np.flatnonzero(np.isin(groups, wanted)).tolist():
        copy = int(first[i])
        place, direction, label = int(own.place[copy]), int(own.direction[copy]), int(own.label[copy])
        described[int(groups[i])] = _Described(place, direction, label, round(int(size[i]) / side.steps))
    return described


def _tables(grouped: Grouped, own: _Copies, side: ComparedRun) -> _Tables:
    device = side.run.timeline.device
    memory = device.host_memory[own.row]
    return _Tables(
        first=grouped.first(np.arange(len(own.row))),
        count=grouped.sums(np.ones(len(own.row), dtype=np.int64)),
        bytes=grouped.sums(np.maximum(device.bytes[own.row], 0)),
        taken=grouped.sums((device.end - device.start)[own.row]),
        pageable=grouped.sums((memory == HostMemory.PAGEABLE).astype(np.int64)),
        pinned=grouped.sums((memory == HostMemory.PINNED).astype(np.int64)),
        blocking=grouped.sums(own.blocking.astype(np.int64)),
    )


def _change(sides: Sides, sets: list[_Copies], tables: list[_Tables], group: int) -> CopyChange | None:
    """Returns the change of a group of copies, or None if nothing changed."""
    a, b = tables
    at = [int(table.first[group]) for table in tables]
    status = present(at[0], at[1])
    pageable, pinned = count(a.pageable, b.pageable, group), count(a.pinned, b.pinned, group)
    blocking = count(a.blocking, b.blocking, group)
    change = CopyChange(
        status=status,
        where_a=_where(sides, sides.a, sets[0], at[0]),
        where_b=_where(sides, sides.b, sets[1], at[1]),
        direction=_DIRECTIONS[CopyDirection(int(sets[at[0] < 0].direction[at[at[0] < 0]]))],
        became=_became(pageable, pinned, blocking) if status == "changed" else (),
        count=count(a.count, b.count, group),
        pageable=pageable,
        pinned=pinned,
        blocking=blocking,
        bytes=Size(a=a.bytes.per_step(group), b=b.bytes.per_step(group)),
        device_ns=time(a.taken, b.taken, group),
    )
    alike = all(each.same for each in (change.count, pageable, pinned, blocking)) and change.bytes.a == change.bytes.b
    slower = change.device_ns.beyond_noise and not sides.negligible(change.device_ns.change)
    return None if status == "changed" and alike and not slower else change


def _became(pageable: Count, pinned: Count, blocking: Count) -> tuple[Became, ...]:
    became: list[Became] = []
    if pageable.a and not pageable.b and pinned.b:
        became.append("pinned")
    if pageable.b and not pageable.a and pinned.a:
        became.append("pageable")
    if bool(blocking.a) != bool(blocking.b):
        became.append("blocking" if blocking.b else "non-blocking")
    return tuple(became)


def _where(sides: Sides, side: ComparedRun, own: _Copies, copy: int) -> Where | None:
    if copy < 0:
        return None
    row = int(own.call[copy])
    return side.where(row, int(own.label[copy]), sides.texts) if row >= 0 else Where()


def _order(change: CopyChange) -> tuple[int, int, list[str]]:
    moved = abs(change.bytes.b - change.bytes.a)
    where = [*sorted(map(str, (change.where_a, change.where_b))), change.direction]
    return -abs(change.device_ns.change), -moved, where
