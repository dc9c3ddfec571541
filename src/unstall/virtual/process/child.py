"""What happens in a process that `unstall run --gpu` started, or one of its children, before its first line."""

from __future__ import annotations

from pathlib import Path

from unstall.record.settings import Settings
from unstall.virtual.options import Options
from unstall.virtual.process.machine import machine


def arm(virtual: str, settings: str | None) -> None:
    """Have a virtual GPU here. `settings`, of the program itself alone, say in which folder to leave its run."""
    watch = machine(Options.from_json(virtual)).watch()
    if settings is not None:
        from unstall.virtual.process.kept import Kept

        Kept(watch, Path(Settings.from_json(settings).folder))
