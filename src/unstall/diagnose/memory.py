"""Finds how much device memory torch's caching allocator has allocated and reserved over time, and
which lines have allocated it.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.reserved import rows_at
from unstall.diagnose.run import Run
from unstall.result import DeviceMemory, LineMemory
from unstall.timeline.allocations import joined
from unstall.timeline.columns import I64
from unstall.timeline.grouping import groups

INTERVALS = 240
_DRAWN_LINES = 5
"""For how many source lines the memory that they allocated is given over time."""


def memory_over_time(run: Run) -> tuple[DeviceMemory, ...]:
    """Returns the allocated and reserved memory over time for each device whose allocations were
    recorded, in the order of the devices' numbers.
    """
    timeline, memory = run.timeline, run.timeline.memory
    rows = np.flatnonzero((memory.device >= 0) & (memory.allocated >= 0))
    at = rows_at(run, memory.time[rows])
    end = max(int(each.max(initial=0)) for each in (memory.time, timeline.host.end, timeline.device.end))
    return tuple(_of_device(run, number, rows[mine], at[mine], end) for number, mine in groups(memory.device[rows]))


def _of_device(run: Run, number: int, rows: I64, at: I64, end: int) -> DeviceMemory:
    """Returns the memory of one device until the time `end`.

    `rows` are the device's changes, as indices of rows of `timeline.memory`. `at` has the event of
    the host in which each change happened, as the index of a row of `timeline.host`.
    """
    memory = run.timeline.memory
    time, size, allocated = memory.time[rows], memory.size[rows], memory.allocated[rows]
    allocation, freed = joined(memory.device[rows], memory.address[rows], size)
    peak = int(allocated.argmax())
    # A change belongs to the place of the allocation of its block. -1 if this is not known.
    place = np.where(at >= 0, np.append(run.places.place, -1)[at], -1)
    owner = np.where(allocation >= 0, place[allocation], -1)
    live = np.flatnonzero((allocation == np.arange(len(rows))) & (freed > peak) & (owner >= 0))
    live = live[live <= peak]
    parts = sorted(groups(owner[live]), key=lambda part: -int(size[live[part[1]]].sum()))
    window = int(time[0]), end
    chosen = _highest(time, allocated, window)
    lines = []
    for rank, (line, mine) in enumerate(parts):
        over_time = np.cumsum(np.where(owner == line, size, 0)) if rank < _DRAWN_LINES else None
        lines.append(
            LineMemory(
                where=run.places.where(line, at[live[mine]], op=None),
                bytes=int(size[live[mine]].sum()),
                count=len(mine),
                over_time=() if over_time is None else tuple(over_time[chosen].tolist()),
            )
        )
    reserved = memory.reserved[rows]
    has_reserved = bool(reserved.min() >= 0)
    return DeviceMemory(
        device=number,
        start_ns=window[0],
        end_ns=window[1],
        peak_ns=int(time[peak]),
        allocated_bytes=int(allocated[peak]),
        reserved_bytes=int(reserved.max()) if has_reserved else None,
        allocated=tuple(allocated[chosen].tolist()),
        reserved=tuple(reserved[_highest(time, reserved, window)].tolist()) if has_reserved else (),
        lines=tuple(lines),
    )


def _highest(time: I64, values: I64, window: tuple[int, int]) -> I64:
    """Divides the window into equal intervals. Returns, for each interval, the change after which the value is highest
    in the interval. This may be the last change before the interval.
    """
    edges = np.linspace(*window, INTERVALS + 1)
    first = np.maximum(np.searchsorted(time, edges[:-1], side="right") - 1, 0)
    behind = np.append(np.searchsorted(time, edges[1:-1], side="left"), len(time))
    stretches = zip(first.tolist(), np.maximum(behind, first + 1).tolist(), strict=True)
    return np.array([low + int(values[low:high].argmax()) for low, high in stretches], np.int64)
