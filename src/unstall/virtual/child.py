"""Gives a virtual GPU to a program that `unstall run --gpu` started, and to the child processes of
that program.

Each process gets its virtual GPU before the first line of the program runs in it.
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
from unstall.virtual.run_place import RunPlace

_pythons_own = sys.__excepthook__


def arm(place: str | None) -> None:
    """Gives this process a virtual GPU.

    Args:
        place: Where to write what this process did on the virtual GPU when the process ends: a
            `RunPlace` as JSON. None, as in child processes of the program: nothing is written.
    """
    sys.excepthook = sys.__excepthook__ = _show_error  # programs compare the two
    watch = machine(MachineOptions.from_json(os.environ[ENVIRONMENT]), checked=True).watch()
    if place is not None:
        from unstall.virtual.run_folder import RunFolder
        from unstall.virtual.stopping import stop_if_asked

        where = RunPlace.from_json(place)
        RunFolder(watch, where)
        stop_if_asked(watch.machine, Path(where.folder))


def _show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints the traceback of the error that ends the program, as Python does. For a
    NotSupportedError, prints only the user's frames and one sentence.
    """
    if found := current():
        found.ended_by(error)
    errors = sys.modules.get("unstall.virtual.torch_cuda.cuda_errors")  # there if such an error was raised
    if errors is None or not isinstance(error, errors.NotSupportedError):
        _pythons_own(kind, error, trace)
        return
    frames = traceback.extract_tb(trace)
    theirs = [frame for frame in frames if not is_framework(frame.filename) and not frame.filename.startswith(OURS)]
    sys.stderr.write("".join(traceback.format_list(theirs)) + f"unstall: {error}\n")
