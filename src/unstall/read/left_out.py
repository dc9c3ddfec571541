"""Reports which device events of a file are in no table of the timeline, so that no event is lost silently."""

from __future__ import annotations

import numpy as np

from unstall.read import names
from unstall.read.events import Events
from unstall.timeline.columns import I8, Bool, CopyDirection, Device, DeviceKind
from unstall.timeline.grouping import by_text, is_in

_MOST_KINDS = 5
_LONGEST = 40  # characters of a kind


def left_out(events: Events, host_kind: I8, device_kind: I8) -> tuple[list[str], bool]:
    """Returns `(notes, lost)`: notes on those device events of a trace file that the timeline
    leaves out, and whether one of these events may be work of an unknown kind.

    An event counts as a device event if it names a device or a stream, or if the file labels its
    process as a GPU. In a container, the number of the program's process may equal the number of a
    GPU. So a process with host events never counts as a GPU.

    Args:
        events: The events of the trace file.
        host_kind: The HostKind of each event, or -1.
        device_kind: The DeviceKind of each event, or -1.
    """
    rows = np.flatnonzero((host_kind < 0) & (device_kind < 0))
    category = events.category[rows]
    notes = []
    callbacks = int((by_text(category, lambda index: events.strings[index] == names.HOST_NODE)).sum())
    if callbacks:
        notes.append(
            f"{callbacks:,} callback{'s' if callbacks > 1 else ''} of the host in CUDA graphs "
            f"{'were' if callbacks > 1 else 'was'} left out: while one runs, the device counts as idle"
        )
    known = by_text(category, lambda index: names.is_no_work(events.strings[index])) == 1
    is_gpu = by_text(events.process[rows], lambda index: events.strings[index] in events.gpus) == 1
    is_gpu &= ~is_in(events.process[rows], events.process[host_kind >= 0])
    lost: Bool = ~known & (is_gpu | (events.device[rows] >= 0) | (events.stream[rows] >= 0))
    rows = rows[lost]
    if not len(rows):
        return notes, False
    texts = np.where(
        by_text(category[lost], lambda index: events.strings[index] != ""), category[lost], events.name[rows]
    )
    kinds, counts = np.unique(texts, return_counts=True)
    order = np.lexsort((kinds, -counts)).tolist()
    listed = [f"{events.strings[kinds[i]][:_LONGEST]} ({counts[i]:,})" for i in order[:_MOST_KINDS]]
    rest = [f"{len(order) - _MOST_KINDS:,} more kinds"] if len(order) > _MOST_KINDS else []
    events_are = (
        f"{len(rows):,} device events of kinds that are not known were"
        if len(rows) > 1
        else "1 device event of a kind that is not known was"
    )
    notes.append(f"{events_are} left out: {', '.join([*listed, *rest])}")
    return notes, bool(events.duration[rows].any())


def undirected(device: Device) -> list[str]:
    """Returns a list with one note if some copies do not say whether they go to the device or to
    the host. If all copies say so, returns an empty list.
    """
    copies = device.kind == DeviceKind.COPY
    lost = int((copies & (device.direction == CopyDirection.NONE)).sum())
    if not lost:
        return []
    return [
        f"{lost:,} of {int(copies.sum()):,} copies do not say their direction: they count as work, and cause no finding"
    ]
