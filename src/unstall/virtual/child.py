"""Gives a process that `unstall run --gpu` started, or one of its children, a virtual GPU before its first line."""

from __future__ import annotations

import os
from pathlib import Path

from unstall.virtual.machine import machine
from unstall.virtual.options import ENVIRONMENT, MachineOptions


def arm(folder: str | None) -> None:
    """Have a virtual GPU here. `folder`, which the program itself alone has, is where to leave its run."""
    watch = machine(MachineOptions.from_json(os.environ[ENVIRONMENT])).watch()
    if folder is not None:
        from unstall.virtual.run_folder import RunFolder

        RunFolder(watch, Path(folder))
