"""Programs in processes of their own: under `unstall run --gpu`, and by themselves."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processes import succeeded

PROGRAMS = Path(__file__).parent / "programs"


def run_gpu(
    program: str, folder: Path, *arguments: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """`unstall run --gpu h200 OPTIONS programs/PROGRAM.py ARGUMENTS`, in a folder, where its trace goes too."""
    command = ["-m", "unstall", "run", "--gpu", "h200", *options, str(PROGRAMS / f"{program}.py"), *arguments]
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=folder, timeout=600, check=False
    )


@functools.cache
def facts(program: str, *before: str) -> dict[str, Any]:
    """What `python BEFORE programs/PROGRAM.py` printed in its last line; it is run once."""
    command = [sys.executable, *before, str(PROGRAMS / f"{program}.py")]
    done = succeeded(command)
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed
