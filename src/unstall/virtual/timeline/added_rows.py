"""Adds host events to a timeline, and puts right all that refers to host events by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from unstall.read.nest import find_parents
from unstall.timeline.columns import I32, I64, Host, HostKind, Timeline
from unstall.virtual.timeline.rows import rows_of
from unstall.virtual.timeline.uploads import renumbered

_OUTERMOST_FIRST = {HostKind.ANNOTATION: 0, HostKind.PYTHON: 1, HostKind.OP: 2}


def with_host_rows(
    timeline: Timeline, kind: HostKind, thread: I32, start: I64, end: I64, names: Sequence[str], stack: I32
) -> Timeline:
    """Returns the timeline with more host events, all of one kind.

    Args:
        timeline: The timeline to which the events are added.
        kind: The kind of all added events.
        thread: For each added event, the row of its thread in the table `Threads`.
        start: For each added event, its start in ns.
        end: For each added event, its end in ns.
        names: For each added event, its name.
        stack: For each added event, the row of its stack in the table `Stacks`, or -1.
    """
    count = len(start)
    none = np.full(count, -1, np.int32)
    interned = {name: number for number, name in enumerate(dict.fromkeys(names), len(timeline.strings))}
    added = Host(
        kind=np.full(count, kind, np.int8),
        thread=thread,
        start=start,
        end=end,
        name=np.array([interned[name] for name in names], np.int32),
        correlation=np.full(count, -1, np.int64),
        parent=none,
        op=none,
        forward=none,
        stack=stack,
        shapes=none,
    )
    both = Host(*(np.concatenate((getattr(timeline.host, n), getattr(added, n))) for n in Host.__struct_fields__))
    rank = np.full(len(both), len(_OUTERMOST_FIRST))
    for each, place in _OUTERMOST_FIRST.items():
        rank[both.kind == each] = place
    # Of frames with equal times, the added one encloses the other: a sleep event lies within its caller.
    is_added = np.arange(len(both)) >= len(timeline.host)
    within = ~is_added if kind == HostKind.PYTHON else is_added
    order = np.lexsort((within, rank, -both.end, both.start, both.thread))
    number = np.full(len(both) + 1, -1, np.int32)
    number[order] = np.arange(len(both), dtype=np.int32)
    host = rows_of(both, order)
    waits, races, faults, needs = timeline.waits, timeline.races, timeline.faults, timeline.dependencies
    return replace(
        timeline,
        strings=(*timeline.strings, *interned),
        host=replace(
            host,
            parent=find_parents(host.kind, host.thread, host.start, host.end),
            op=number[host.op],
            forward=number[host.forward],
        ),
        device=replace(timeline.device, launch=number[timeline.device.launch]),
        waits=replace(waits, host=number[waits.host], record=number[waits.record]),
        races=replace(races, earlier=number[races.earlier], later=number[races.later]),
        dependencies=replace(needs, earlier=number[needs.earlier], later=number[needs.later]),
        uploads=renumbered(timeline.uploads, number),
        held=replace(timeline.held, call=number[timeline.held.call]),
        faults=replace(faults, call=number[faults.call], replay=number[faults.replay], noticed=number[faults.noticed]),
    )
