"""Runs another version of unstall, to compare it with this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]


@contextmanager
def installed(before: str) -> Iterator[Path]:
    """Builds another version of unstall with its C extensions. Yields the folder from which it can
    be imported while the context lasts.

    Args:
        before: A revision of this repository, or the folder of another checkout.
    """
    source = before if Path(before).is_dir() else f"git+file://{HERE}@{before}"
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, source], check=True)
        yield Path(folder)


def environment(source: Path) -> dict[str, str]:
    """Returns environment variables with which `import unstall` imports from the folder
    `source`.
    """
    return {**os.environ, "PYTHONPATH": str(source)}
