"""A small file system for tests of full disks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_BLOCK = bytes(4096)


@contextmanager
def small_disk(folder: Path, size: str = "64k") -> Iterator[Path]:
    """Makes `folder` a file system of that size. Skips the test if that is not permitted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, *, but: int = 0) -> None:
    """Fills the file system of a folder, but for a number of bytes."""
    with (folder / "rest").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(_BLOCK)
    if but:
        with (folder / "rest").open("ab") as file:
            file.truncate(max(0, file.tell() - but))
