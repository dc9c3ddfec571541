"""Sealed files: compiled files that end with the digest of their content.

The loader and the linker of ELF files ignore what follows the sections. A file that was cut short, or whose disk lost a
part of it, has no seal or a wrong one. Loading such a library may kill the process (SIGBUS).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_MAGIC = b"unstall sealed\0\0"
_SEAL_BYTES = len(_MAGIC) + hashlib.sha256().digest_size


def seal(path: Path) -> None:
    """Appends a seal to a file."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    with path.open("ab") as file:
        file.write(_MAGIC + digest)


def is_sealed(path: Path) -> bool:
    """Returns whether a file is as it was when it was sealed. Returns False if there is no such file."""
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return False
    end = len(content) - _SEAL_BYTES
    if end < 0:
        return False
    return bytes(content[end:]) == _MAGIC + hashlib.sha256(content[:end]).digest()
