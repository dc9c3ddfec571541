"""The part of a timeline that began within a stretch of time."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from unstall.timeline import I32, Bool, Device, Host, Memory, Timeline, Waits

_Table = TypeVar("_Table", Host, Device, Waits, Memory)


def cut(timeline: Timeline, start_ns: int, end_ns: int) -> Timeline:
    """The host events that began in [start_ns, end_ns), the device ops that they launched, and their waits.

    Times are from `start_ns` on. An operator is kept with all that it called, whenever that began.
    """
    host, device = timeline.host, timeline.device
    kept = (host.start >= start_ns) & (host.start < end_ns)
    row = _numbers(kept)
    ours = kept[np.maximum(device.launch, 0)] if len(host) else np.zeros(len(device), np.bool_)
    ours = np.where(device.launch >= 0, ours, (device.start >= start_ns) & (device.start < end_ns))
    of_calls = kept[timeline.waits.host] if len(timeline.waits) else np.zeros(0, np.bool_)
    remembered = (timeline.memory.time >= start_ns) & (timeline.memory.time < end_ns)
    host, device = _rows(host, kept), _rows(device, ours)
    waits, memory = _rows(timeline.waits, of_calls), _rows(timeline.memory, remembered)
    return replace(
        timeline,
        host=replace(
            host,
            start=host.start - start_ns,
            end=host.end - start_ns,
            parent=_at(row, host.parent),
            op=_at(row, host.op),
            forward=_at(row, host.forward),
        ),
        device=replace(
            device, start=device.start - start_ns, end=device.end - start_ns, launch=_at(row, device.launch)
        ),
        waits=replace(waits, host=_at(row, waits.host), record=_at(row, waits.record)),
        races=replace(timeline.races, earlier=_at(row, timeline.races.earlier), later=_at(row, timeline.races.later)),
        memory=replace(memory, time=memory.time - start_ns),
        meta=replace(timeline.meta, zero_ns=timeline.meta.zero_ns + start_ns),
    )


def _numbers(kept: Bool) -> I32:
    """The new number of each row, and -1 at the end, for -1."""
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    return np.append(numbers, -1).astype(np.int32)


def _at(numbers: I32, rows: I32) -> I32:
    return numbers[rows]


def _rows(table: _Table, kept: Bool) -> _Table:
    columns: dict[str, Any] = {field.name: getattr(table, field.name)[kept] for field in fields(table)}
    return replace(table, **columns)
