"""Commands in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def chromium() -> str | None:
    """Where the browser is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def succeeded(
    command: Sequence[str], *, timeout: int = 600, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it printed, once it has ended with exit code 0 within so many seconds."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return done
