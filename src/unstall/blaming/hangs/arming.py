"""Arms the Python processes that a blamed program starts, such as its ranks.

It imports next to nothing before torch is there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unstall.blaming.hangs.child import attend, can_attend
from unstall.guest.imports import when_imported

MODULE = "unstall.blaming.hangs.arming"
FOLDER = "UNSTALL_BLAME_FOLDER"
"""The variable that names the folder to them; each has a folder of its own in it, named by its process id."""


def arm(settings: str | None) -> None:
    """Lets a child process of the program be asked. Does nothing if the supervisor has ended."""
    del settings  # a child is given none
    above = Path(os.environ.get(FOLDER, ""))
    if not os.environ.get(FOLDER) or not above.is_dir() or not can_attend():
        return
    folder = above / str(os.getpid())
    _take(folder)
    attend(folder)
    when_imported("torch", lambda: _follow_work(folder))


def _take(folder: Path) -> None:
    """Makes a folder, or empties it if it is from before an `execv` of this process."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        for left in folder.iterdir():
            left.unlink()


def _follow_work(folder: Path) -> None:
    """Notes work once CUDA is initialised: the tables take 22 MiB."""
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
