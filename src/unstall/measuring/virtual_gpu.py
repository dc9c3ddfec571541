"""Answers what benchmarks ask of the virtual GPU of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstall.virtual.machine import current

if TYPE_CHECKING:
    from unstall.virtual.simulation.simulator import Simulator


def simulator() -> Simulator | None:
    """Returns the simulator of this process's virtual GPU, or None if there is no virtual GPU."""
    machine = current()
    return machine.simulator if machine is not None else None


def is_clock_virtual() -> bool:
    """Returns whether `time.perf_counter` now reads the virtual clock. The virtual clock does not
    advance while only the host works.
    """
    machine = current()
    return machine is not None and machine.is_watched and machine.simulator is not None


def ops_so_far() -> int:
    """Returns the number of ops that the virtual GPU has run so far."""
    found = simulator()
    if found is None:
        return 0
    found.drain()
    return found.simulation.history.ran.length
