"""Chooses places for the ring files of child processes. A ring file is the file in which a process
records the work that it puts on streams. If shared memory has too little space, the ring files go
to another place.
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
    """Returns a context manager. While it is entered, there is a temporary folder outside of shared
    memory, and a link to it in `folder`, which is in shared memory.

    The temporary folder is for ring files (the files in which processes record their work on
    streams). If the temporary folder cannot be made, `folder` gets no link.
    """
    try:
        room = tempfile.TemporaryDirectory(prefix="unstall-rings-", ignore_cleanup_errors=True)
    except OSError:
        yield
        return
    with room as path:
        (folder / _SPARE).symlink_to(path)
        yield


def place_for_ring(folder: Path) -> Path:
    """Returns the path at which a process creates its ring file (the file in which it records its
    work on streams).

    Usually, the path is in `folder`. If shared memory has too little space, the path is in the
    folder that `spare_room` made outside of shared memory. In that case, this function makes a
    symbolic link to the path in `folder`.

    Args:
        folder: The folder of the process, in shared memory.
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
    """Removes the ring file of a process (the file in which it recorded its work on streams), if
    there is one. If the file in `folder` is a symbolic link, removes both the link and its target.

    `folder` is the folder of the process.
    """
    ring = folder / RING
    ring.resolve().unlink(missing_ok=True)
    ring.unlink(missing_ok=True)
