"""Where the rings of the processes lie that a blamed program starts: not in shared memory that the program may need."""

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
    """Makes room outside shared memory for rings of the processes of a folder, and removes it with them."""
    try:
        room = tempfile.TemporaryDirectory(prefix="unstall-rings-", ignore_cleanup_errors=True)
    except OSError:
        yield
        return
    with room as path:
        (folder / _SPARE).symlink_to(path)
        yield


def place_for_ring(folder: Path) -> Path:
    """Returns where the ring of the process of this folder is to be made; the folder then has a link to it."""
    about = os.statvfs(folder)
    spare = folder.parent / _SPARE
    if about.f_bavail * about.f_frsize >= _SHARE * RING_BYTES or not spare.is_dir():
        return folder / RING
    ring = spare / folder.name
    ring.unlink(missing_ok=True)  # of an earlier process of this number
    (folder / RING).symlink_to(ring)
    return ring


def remove_ring(folder: Path) -> None:
    """Removes a ring wherever it is, if there is one."""
    ring = folder / RING
    ring.resolve().unlink(missing_ok=True)
    ring.unlink(missing_ok=True)
