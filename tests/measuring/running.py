"""Programs of `programs/` in processes of their own, each run once."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


@functools.cache
def facts(program: str, *arguments: str) -> dict[str, Any]:
    """What it printed in its last line."""
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed
