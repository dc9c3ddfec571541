"""The virtual GPU of this process, as benchmarks need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstall.virtual.machine import current

if TYPE_CHECKING:
    from unstall.virtual.simulation.keeper import Keeper


def keeper() -> Keeper | None:
    """The keeper of its simulation; None if this process has no virtual GPU."""
    machine = current()
    return machine.keeper if machine is not None else None


def is_clock_virtual() -> bool:
    """Whether `time.perf_counter` is the virtual clock now, which stands still while only Python works."""
    machine = current()
    return machine is not None and machine.is_watched and machine.keeper is not None


def ops_so_far() -> int:
    """How many ops the virtual GPU was given so far."""
    simulator = keeper()
    if simulator is None:
        return 0
    simulator.drain()
    return simulator.simulation.history.ran.length
