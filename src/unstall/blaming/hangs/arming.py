"""Starts an agent in each Python child process of a program under `--blame`, for example in each
rank. The agent is a thread that answers what the process is doing.

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
"""The name of an environment variable. Its value is a folder. Each child process makes a subfolder
there, named by its process id.
"""


def arm(settings: str | None) -> None:
    """Starts an agent in this child process: a thread that tells `unstall run`, if asked, which
    lines the process is executing and which of its streams have finished.

    Does nothing if that `unstall run` has ended. `settings` is not used: the folder of the run
    comes from the environment.
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
    """Makes the folder of this process. If the folder exists, this process made it before an
    `execv`. In that case, the folder is emptied.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        for left in folder.iterdir():
            left.unlink()


def _follow_work(folder: Path) -> None:
    """Starts to record the work of this process when CUDA is initialised.

    The tables for the record take 22 MiB, which a process without CUDA does not spend.
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
