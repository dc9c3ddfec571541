"""Counts launches and reserved memory since a point of the simulation (a mark), without building a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unstall.virtual.simulation.simulate import Simulation


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the simulation. `since` counts from this point.

    Attributes:
        ops: The number of device ops in the history.
        changes: The number of changes of allocated memory in the history.
        reserved: The bytes that the caching allocator has reserved on each device.
    """

    ops: int = 0
    changes: int = 0
    reserved: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened since a mark.

    Attributes:
        launches: The number of calls that put work on a device. Each call launches a kernel, a graph, a copy or a
            memset.
        reserved_peak_bytes: The peak of the memory that the caching allocator reserved on one device. If there are
            several devices, this is the highest peak of any device.
    """

    launches: int
    reserved_peak_bytes: int


def mark(simulation: Simulation) -> Mark:
    """Returns a mark at the current point of the simulation."""
    requests = simulation.requests
    return Mark(
        ops=simulation.history.ran.length,
        changes=simulation.history.allocated.length,
        reserved=tuple(requests.allocator(device).memory_reserved() for device in requests.devices),
    )


def since(simulation: Simulation, start: Mark) -> Counts:
    """Returns the counts since a mark. Takes time proportional to the number of launches and allocations since the
    mark.
    """
    history = simulation.history
    launching = history.ran.since("instruction", start.ops)
    reserved = history.allocated.since("reserved", start.changes)
    return Counts(
        launches=len(np.unique(launching)),
        reserved_peak_bytes=int(reserved.max(initial=max(start.reserved, default=0))),
    )
