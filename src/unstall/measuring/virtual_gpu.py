"""The virtual GPU of this process, as far as a benchmark asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstall.virtual.machine import current

if TYPE_CHECKING:
    from unstall.virtual.simulation.simulator import Simulator


def keeper() -> Simulator | None:
    """What simulates it; None where this process has none."""
    machine = current()
    return machine.simulator if machine is not None else None


def is_clock_virtual() -> bool:
    """Whether `time.perf_counter` is the virtual clock now, which stands still while Python alone is at work."""
    machine = current()
    return machine is not None and machine.is_watched and machine.simulator is not None


def ops_so_far() -> int:
    """How many ops the virtual device was given."""
    simulator = keeper()
    if simulator is None:
        return 0
    simulator.drain()
    return simulator.simulation.history.ran.length
