"""Cuts a span of time out of a timeline."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.timeline.columns import I32, Bool, Collectives, Dependencies, Faults, HostKind, Timeline
from unstall.virtual.timeline.rows import rows_of
from unstall.virtual.timeline.uploads import renumbered

FOREVER = 2**62  # ns; later than the end of any run
"""A time in ns that is later than the end of any run."""


def before_operators(timeline: Timeline, at_ns: int) -> int:
    """Returns the latest time up to `at_ns` at which no operator runs, in ns. A cut there splits no operator."""
    host = timeline.host
    splits = (host.kind == HostKind.OP) & (host.start < at_ns) & (host.end > at_ns)
    return before_operators(timeline, int(host.start[splits].min())) if splits.any() else at_ns


def cut(timeline: Timeline, start_ns: int, end_ns: int) -> Timeline:
    """Returns the timeline of a span of time: the host events that began in [start_ns, end_ns),
    their waits, and the ops that they launched.

    Ops that were launched before and were not done at `start_ns` are included, too, without their
    launches. Time 0 is `start_ns`, or the start of the earliest of these ops.

    Only its start decides whether a host event is included. So calls within an included operator
    are left out if they began at `end_ns` or later. `meta` has the peak of reserved memory up to
    `end_ns`.
    """
    host, device = timeline.host, timeline.device
    kept = (host.start >= start_ns) & (host.start < end_ns)
    ours = kept[np.maximum(device.launch, 0)] if len(host) else np.zeros(len(device), np.bool_)
    before = host.start[device.launch] < start_ns if len(host) else ours
    ours |= (device.end > start_ns) & np.where(device.launch >= 0, before, device.start < end_ns)
    zero = int(device.start[ours].min(initial=start_ns))
    of_calls = kept[timeline.waits.host] if len(timeline.waits) else np.zeros(0, np.bool_)
    remembered = (timeline.memory.time >= start_ns) & (timeline.memory.time < end_ns)
    peak = timeline.memory.reserved[(timeline.memory.device >= 0) & (timeline.memory.time < end_ns)].max(initial=-1)
    told = timeline.meta.reserved_peak_bytes
    if told is not None and not (timeline.memory.time >= end_ns).any():  # it may be of earlier memory than is here
        peak = max(peak, told)
    timeline = replace(with_ops(timeline, ours), waits=rows_of(timeline.waits, of_calls))
    timeline = _with_host(timeline, kept)
    host, device, memory = timeline.host, timeline.device, rows_of(timeline.memory, remembered)
    reads = timeline.clock_reads
    read = (reads.time >= start_ns) & (reads.time <= end_ns)
    return replace(
        timeline,
        host=replace(host, start=host.start - zero, end=host.end - zero),
        device=replace(device, start=device.start - zero, end=device.end - zero),
        memory=replace(memory, time=memory.time - zero),
        clock_reads=replace(rows_of(reads, read), time=reads.time[read] - zero),
        meta=replace(
            timeline.meta,
            zero_ns=timeline.meta.zero_ns + zero,
            reserved_peak_bytes=int(peak) if peak >= 0 else timeline.meta.reserved_peak_bytes,
        ),
    )


def with_ops(timeline: Timeline, kept: Bool) -> Timeline:
    """Returns the timeline with only the ops in `kept`, which is a mask of `timeline.device`."""
    collectives = _collectives(timeline.collectives, kept)
    return replace(timeline, device=rows_of(timeline.device, kept), collectives=collectives)


def _collectives(collectives: Collectives, kept: Bool) -> Collectives:
    """Returns the collectives whose ops are kept. `kept` is a mask of the table `Device`."""
    mine = rows_of(collectives, kept[collectives.op])
    return replace(mine, op=_numbers(kept)[mine.op])


def without_host(timeline: Timeline, dropped: Bool) -> Timeline:
    """Returns the timeline without the host events in `dropped`, which is a mask of
    `timeline.host`. There must be no waits among them.

    What is called within these events stays in the timeline, and so do the ops that these calls
    launched.
    """
    return _with_host(timeline, ~dropped) if dropped.any() else timeline


def _with_host(timeline: Timeline, kept: Bool) -> Timeline:
    """Returns the timeline with only the host events in `kept`. What refers to another host event
    refers to none (-1).
    """
    host, device, waits, row = timeline.host, timeline.device, timeline.waits, _numbers(kept)
    host = rows_of(host, kept)
    return replace(
        timeline,
        host=replace(host, parent=row[host.parent], op=row[host.op], forward=row[host.forward]),
        device=replace(device, launch=row[device.launch]),
        waits=replace(waits, host=row[waits.host], record=row[waits.record]),
        races=replace(timeline.races, earlier=row[timeline.races.earlier], later=row[timeline.races.later]),
        dependencies=_dependencies(timeline.dependencies, row),
        uploads=renumbered(timeline.uploads, row),
        held=replace(timeline.held, call=row[timeline.held.call]),
        faults=_faults(timeline.faults, kept, row),
    )


def _dependencies(table: Dependencies, row: I32) -> Dependencies:
    """Returns the dependencies between host events that are kept. `row` has the new row of each host event, or -1."""
    earlier, later = row[table.earlier], row[table.later]
    kept = (earlier >= 0) & (later >= 0)
    return Dependencies(earlier[kept], later[kept], table.bytes[kept])


def _faults(faults: Faults, kept: Bool, row: I32) -> Faults:
    """Returns the faults of work that a kept host event launched, and those of work whose launch is
    unknown.

    `kept` is a mask of the table `Host`. `row` has the new row of each host event, or -1.
    """
    launched = np.where(faults.replay >= 0, faults.replay, faults.call)
    mine = (launched < 0) | kept[launched] if len(kept) else launched < 0
    faults = rows_of(faults, mine)
    return replace(faults, call=row[faults.call], replay=row[faults.replay], noticed=row[faults.noticed])


def _numbers(kept: Bool) -> I32:
    """Returns the new number of each row, if only the rows in `kept` are left; -1 for the others.
    One more -1 stands at the end, so that the row -1 stays -1.
    """
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    return np.append(numbers, -1).astype(np.int32)
