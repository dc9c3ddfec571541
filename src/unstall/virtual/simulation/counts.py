"""Counts of what happened since a mark, without a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unstall.virtual.simulation.simulate import Simulation


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the simulation: the numbers of rows in its history, and the bytes that each device has reserved."""

    ops: int = 0
    changes: int = 0
    reserved: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened since a mark.

    Attributes:
        launches: How often the host put work on a device: one call for a kernel, a graph, a copy or a memset.
        reserved_peak_bytes: The most memory that the caching allocator had reserved of a device, of the device with
            the highest peak.
    """

    launches: int
    reserved_peak_bytes: int


def mark(simulation: Simulation) -> Mark:
    """Returns the point up to which the log was simulated."""
    requests = simulation.requests
    return Mark(
        ops=simulation.history.ran.length,
        changes=simulation.history.allocated.length,
        reserved=tuple(requests.allocator(device).memory_reserved() for device in requests.devices),
    )


def since(simulation: Simulation, start: Mark) -> Counts:
    """Returns the counts since a mark. Takes time in proportion to what happened since."""
    history = simulation.history
    launching = history.ran.since("instruction", start.ops)
    reserved = history.allocated.since("reserved", start.changes)
    return Counts(
        launches=len(np.unique(launching)),
        reserved_peak_bytes=int(reserved.max(initial=max(start.reserved, default=0))),
    )
