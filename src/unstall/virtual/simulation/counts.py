"""Counts launches, and finds the peak of reserved memory, from a given point of the simulation on.
It needs no timeline for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unstall.virtual.simulation.simulate import Simulation


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the simulation from which on `since` counts.

    Attributes:
        ops: How many device ops had run by then.
        changes: How often the allocated memory had changed by then.
        reserved: The bytes that the caching allocator had reserved then, for each device with an
            allocator.
    """

    ops: int = 0
    changes: int = 0
    reserved: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened from a given point of the simulation on.

    Attributes:
        launches: The number of calls that put work on a device: of a kernel, a CUDA graph, a copy
            or a memset.
        reserved_peak_bytes: The most memory that the caching allocator had reserved on one device
            at any time. With several devices, that of the device with the most.
    """

    launches: int
    reserved_peak_bytes: int


def mark(simulation: Simulation) -> Mark:
    """Returns the current point of the simulation. `since` counts from it."""
    requests = simulation.requests
    return Mark(
        ops=simulation.history.ran.length,
        changes=simulation.history.allocated.length,
        reserved=tuple(requests.allocator(device).memory_reserved() for device in requests.devices),
    )


def since(simulation: Simulation, start: Mark) -> Counts:
    """Returns what happened in the simulation from the point `start` on."""
    history = simulation.history
    launching = history.ran.since("instruction", start.ops)
    reserved = history.allocated.since("reserved", start.changes)
    return Counts(
        launches=len(np.unique(launching)),
        reserved_peak_bytes=int(reserved.max(initial=max(start.reserved, default=0))),
    )
