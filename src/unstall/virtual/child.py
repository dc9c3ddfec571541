"""Gives a process that `unstall run --gpu` started, or one of its children, a virtual GPU before its first line."""

from __future__ import annotations

import os
from pathlib import Path

from unstall.virtual.machine import machine
from unstall.virtual.options import ENVIRONMENT, MachineOptions


def arm(folder: str | None) -> None:
    """Give this process a virtual GPU. `folder`, None for the program's children, is where it leaves its run."""
    watch = machine(MachineOptions.from_json(os.environ[ENVIRONMENT])).watch()
    if folder is not None:
        from unstall.virtual.run_folder import RunFolder
        from unstall.virtual.stopping import stop_if_asked

        RunFolder(watch, Path(folder))
        stop_if_asked(watch.machine, Path(folder))
