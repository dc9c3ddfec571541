"""Computes digests of source lines. If a line of source was moved between two runs, a comparison of
the runs recognises the line by its digest. The text of the source is not stored.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from unstall.frameworks import is_framework

MOST_BYTES = 2 << 20  # the largest files of Python's own standard library and of torch are below 1 MiB
_DIGEST_BYTES = 6  # JSON's readers keep integers below 2**53
UNKNOWN = -1


def digest_of(line: bytes) -> int:
    """Returns a digest (a 48-bit integer) of the text `line`. White space at the beginning and the
    end of `line` is ignored. Returns -1 if `line` is blank.
    """
    text = line.strip()
    return int.from_bytes(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()) if text else UNKNOWN


class LineDigests:
    """A callable object: `digests(file, line)` returns the digest of line number `line` of the file
    at path `file`. It returns -1 if there is no digest of this line.

    Lines in files of frameworks have no digest. Lines of a file that changed after the program
    began have no digest either, because the program may have run an earlier version of the file.
    """

    def __init__(self, folder: str, began_s: float) -> None:
        """Creates the object for one run of a program.

        Args:
            folder: The folder in which the program was started. Relative paths of files are
                relative to this folder.
            began_s: The time at which the program was started, in s, as `time.time` returns it.
        """
        self._folder = folder
        self._began_s = began_s
        self._files: dict[str, list[bytes]] = {}

    def __call__(self, file: str, line: int) -> int:
        if file not in self._files:
            self._files[file] = [] if is_framework(file) else self._read(Path(self._folder, file))
        lines = self._files[file]
        return digest_of(lines[line - 1]) if 1 <= line <= len(lines) else UNKNOWN

    def _read(self, path: Path) -> list[bytes]:
        try:
            # A pipe of this name must not be waited for.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_mtime > self._began_s:
                    return []
                text = file.read(MOST_BYTES + 1)
        except (OSError, ValueError):
            return []
        return text.split(b"\n") if len(text) <= MOST_BYTES else []
