"""Programs that print facts of a virtual GPU, each in a process of its own."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from processes import succeeded

HERE = Path(__file__).parent


@functools.cache
def facts(program: str, devices: int = 1, numerics: str = "real") -> dict[str, Any]:
    """What `programs/PROGRAM.py` printed in its last line; it is run once."""
    command = [
        sys.executable,
        str(HERE / "prelude.py"),
        str(devices),
        numerics,
        str(HERE / "programs" / f"{program}.py"),
    ]
    done = succeeded(command)
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed
