"""Finds the peak of the device memory that torch's allocator reserved, and the lines that allocate device memory."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.result import LineBytes, Reserved
from unstall.timeline.columns import I64, HostKind
from unstall.timeline.grouping import groups

_MOST_LINES = 100


def peak_reserved(run: Run) -> Reserved | None:
    """Returns the peak of the device memory that torch's allocator reserved; None if the recording
    does not contain it.

    The recording may contain two peaks: one that torch reported, and the highest amount in the
    allocator's events. The higher peak is returned.
    """
    memory, told = run.timeline.memory, run.timeline.meta.reserved_peak_bytes
    seen = int(memory.reserved[memory.device >= 0].max(initial=-1))
    most = max(seen, -1 if told is None else told)
    return Reserved(bytes=most, lines=_lines(run)) if most >= 0 else None


def _lines(run: Run) -> tuple[LineBytes, ...]:
    """Returns, for each line, the largest number of bytes that the line allocates in one step."""
    memory, steps = run.timeline.memory, run.steps
    taken = (memory.device >= 0) & (memory.size > 0)
    taken &= (memory.time >= steps.start[0]) & (memory.time < steps.end[-1])
    times, size = memory.time[taken], memory.size[taken]
    rows = rows_at(run, times)
    times, size, rows = times[rows >= 0], size[rows >= 0], rows[rows >= 0]
    step = np.searchsorted(steps.start[1:], times, side="right")
    found = []
    for place, mine in groups(run.places.place[rows]):
        per_step = np.bincount(step[mine], weights=size[mine], minlength=len(steps))
        found.append(LineBytes(where=run.places.where(int(place), rows[mine], None), bytes=int(per_step.max())))
    found.sort(key=lambda line: (-line.bytes, str(line.where)))
    return tuple(found[:_MOST_LINES])


def rows_at(run: Run, times: I64) -> I64:
    """Returns, for each of `times` (in ns), an event of the host that was running at this time, as
    the index of a row of `timeline.host`; -1 if there was none.

    If several events were running, on any threads, the event that began last is chosen. The
    allocator runs within host events, so the thread of that event is taken as the thread that
    allocates.
    """
    host = run.timeline.host
    rows = np.flatnonzero(host.kind != HostKind.OVERHEAD)
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    if not len(rows):
        return np.full(len(times), -1, dtype=np.int64)
    at = np.searchsorted(host.start[rows], times, side="right") - 1
    found = np.where(at >= 0, rows[np.maximum(at, 0)], -1).astype(np.int64)
    while (outside := (found >= 0) & (host.end[found] < times)).any():
        found[outside] = host.parent[found[outside]]
    return found
