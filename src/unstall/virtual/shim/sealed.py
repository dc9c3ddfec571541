"""Seals compiled files: a seal is a digest of the file's content, appended to the file.

It tells whether a file is complete. A file that was cut short has no seal or a wrong one, and
loading such a library may kill the process (SIGBUS). The loader and the linker of ELF files ignore
what is appended.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_MAGIC = b"unstall sealed\0\0"
_SEAL_BYTES = len(_MAGIC) + hashlib.sha256().digest_size


def seal(path: Path) -> None:
    """Appends a digest of the content of the file `path` to that file."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    with path.open("ab") as file:
        file.write(_MAGIC + digest)


def is_sealed(path: Path) -> bool:
    """Returns whether the file `path` ends with the right digest of its content (see `seal`).
    Returns False if there is no such file.
    """
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return False
    end = len(content) - _SEAL_BYTES
    if end < 0:
        return False
    return bytes(content[end:]) == _MAGIC + hashlib.sha256(content[:end]).digest()
