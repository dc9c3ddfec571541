"""Programs on a virtual GPU that print what they found, each in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from processes import succeeded

HERE = Path(__file__).parent
PRELUDE = HERE.parent / "torch_cuda" / "prelude.py"


@functools.cache
def told_by(program: str, *arguments: str) -> dict[str, Any]:
    """The JSON that `programs/PROGRAM.py` printed in its last line; it is run once."""
    command = [sys.executable, str(PRELUDE), "1", "real", str(HERE / "programs" / f"{program}.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = succeeded(command, timeout=900, env=environment)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
