"""Programs under guards on a virtual GPU, each in a process of its own."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from processes import succeeded

HERE = Path(__file__).parent


@functools.cache
def facts(program: str) -> dict[str, Any]:
    """What `programs/PROGRAM.py` printed in its last line; it is run once."""
    printed: dict[str, Any] = last_line([str(HERE / "prelude.py"), str(HERE / "programs" / f"{program}.py")])
    return printed


def last_line(arguments: list[str], cwd: Path | None = None) -> Any:
    """The last line that a Python program printed, as JSON."""
    done = succeeded([sys.executable, *arguments], cwd=cwd)
    return json.loads(done.stdout.splitlines()[-1])
