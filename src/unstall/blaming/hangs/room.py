"""Chooses places for the ring files of child processes. If shared memory has too little space, the files go to another
place.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unstall.blaming.child import RING

RING_BYTES = 18 << 20
_SPARE = "spare"
_SHARE = 10


@contextmanager
def spare_room(folder: Path) -> Iterator[None]:
    """Makes a temporary folder for ring files outside of shared memory. In `folder`, makes a link to it."""
    try:
        room = tempfile.TemporaryDirectory(prefix="unstall-rings-", ignore_cleanup_errors=True)
    except OSError:
        yield
        return
    with room as path:
        (folder / _SPARE).symlink_to(path)
        yield


def place_for_ring(folder: Path) -> Path:
    """Returns where to create the ring file of the process that has this folder.

    If shared memory has too little space, the place is outside of `folder`, and `folder` gets a symbolic link to the
    place.
    """
    about = os.statvfs(folder)
    spare = folder.parent / _SPARE
    if about.f_bavail * about.f_frsize >= _SHARE * RING_BYTES or not spare.is_dir():
        return folder / RING
    ring = spare / folder.name
    ring.unlink(missing_ok=True)  # of an earlier process of this number
    (folder / RING).symlink_to(ring)
    return ring


def remove_ring(folder: Path) -> None:
    """Removes the ring file of this folder, if there is one. If the file is a symbolic link, removes the target of the
    link too.
    """
    ring = folder / RING
    ring.resolve().unlink(missing_ok=True)
    ring.unlink(missing_ok=True)
