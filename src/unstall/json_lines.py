"""Files of JSON lines that a killed program keeps.

Apart from `files.py`, since this is imported into the recorded program before its first line.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence


def append_json_lines(path: str, entries: Sequence[dict[str, object]]) -> None:
    """Append entries to a file, one a line, with one write system call. Values that JSON lacks are stored as text.

    Raises:
        OSError: The disk is full. No part of the entries is kept then: half a line would break the next one.
    """
    if not entries:
        return
    lines = b"".join(json.dumps(entry, default=str).encode() + b"\n" for entry in entries)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = os.write(file, lines)
        if written < len(lines):
            os.ftruncate(file, os.lseek(file, 0, os.SEEK_CUR) - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)
