"""Gives a virtual GPU to a program that `unstall run --gpu` started, and to the program's child processes.

This is done before the first line of the program runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from unstall.frameworks import OURS, is_framework
from unstall.virtual.machine import current, machine
from unstall.virtual.options import ENVIRONMENT, MachineOptions
from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError


def arm(folder: str | None) -> None:
    """Gives this process a virtual GPU, and writes the run of this process to `folder`.

    If `folder` is None, as in child processes, no run is written.
    """
    sys.excepthook = _show_error
    watch = machine(MachineOptions.from_json(os.environ[ENVIRONMENT])).watch()
    if folder is not None:
        from unstall.virtual.run_folder import RunFolder
        from unstall.virtual.stopping import stop_if_asked

        RunFolder(watch, Path(folder))
        stop_if_asked(watch.machine, Path(folder))


def _show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows the error that ends the program. For a NotSupportedError, shows only the user's frames and one sentence."""
    if found := current():
        found.ended_by(error)
    if not isinstance(error, NotSupportedError):
        sys.__excepthook__(kind, error, trace)
        return
    frames = traceback.extract_tb(trace)
    theirs = [frame for frame in frames if not is_framework(frame.filename) and not frame.filename.startswith(OURS)]
    sys.stderr.write("".join(traceback.format_list(theirs)) + f"unstall: {error}\n")
