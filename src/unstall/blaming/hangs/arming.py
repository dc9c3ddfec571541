"""Starts an agent in each Python child process of a program under `--blame`, for example in each rank.

This module imports very little until the process imports torch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unstall.blaming.hangs.child import attend, can_attend
from unstall.guest.imports import when_imported

MODULE = "unstall.blaming.hangs.arming"
FOLDER = "UNSTALL_BLAME_FOLDER"
"""The environment variable that names a folder. In this folder, each process makes a subfolder named by its PID."""


def arm(settings: str | None) -> None:
    """Starts an agent in this child process. If the agent is asked, it answers where the process is.

    Does nothing if the run has ended.
    """
    del settings  # a child is given none
    above = Path(os.environ.get(FOLDER, ""))
    if not os.environ.get(FOLDER) or not above.is_dir() or not can_attend():
        return
    folder = above / str(os.getpid())
    _take(folder)
    attend(folder)
    when_imported("torch", lambda: _follow_work(folder))


def _take(folder: Path) -> None:
    """Makes a folder. If the folder exists, this process made it before an `execv`. In that case, the folder is
    emptied.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        for left in folder.iterdir():
            left.unlink()


def _follow_work(folder: Path) -> None:
    """Starts to record the work of this process when CUDA is initialised.

    Before that, no memory is used for the tables, which take 22 MiB.
    """
    from unstall.guest.device import when_initialised

    process = os.getpid()

    def begin() -> None:
        if os.getpid() != process:
            return  # a forked child; the folder is its parent's
        with suppress(Exception):  # never the program's
            from unstall.blaming.child import start_now
            from unstall.blaming.hangs.room import place_for_ring

            start_now(folder, place_for_ring(folder))

    when_initialised(begin)
