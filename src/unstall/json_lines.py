"""Appends lines to JSON Lines files. If the program is killed, all lines written so far remain in the file.

This module is not a part of `files.py`, because it is imported into the recorded program before the program's first
line.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence


def append_json_lines(path: str, entries: Sequence[dict[str, object]]) -> None:
    """Appends entries to the file `path` as JSON, one entry per line, by a single `write` system call. A value whose
    type JSON does not have is stored as text. If there is no such file, creates it.

    An empty line comes before the entries. So if a write was cut off, by a full disk or because its process was killed,
    what is left of it is a line of its own, which is not JSON. It is not truncated: another thread or process may have
    appended lines since.

    Raises:
        OSError: The file cannot be opened, or the disk is full. If the disk is full, the file has as many of the
            entries as there was room for.
    """
    if not entries:
        return
    lines = b"\n" + b"".join(json.dumps(entry, default=str).encode() + b"\n" for entry in entries)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(file, lines) < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)
