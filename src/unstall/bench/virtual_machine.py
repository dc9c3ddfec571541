"""The virtual GPU of this process, as far as a benchmark asks of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.virtual.simulation.keeper import Keeper


def keeper() -> Keeper | None:
    """What simulates it; None where this process has none."""
    machine = sys.modules.get("unstall.virtual.process.machine")
    machines = getattr(machine, "_machines", ())
    return machines[0].keeper if machines else None
