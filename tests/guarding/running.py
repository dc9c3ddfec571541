"""Programs under guards on a virtual GPU or a real one, each in a process of its own."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded

HERE = Path(__file__).parent

GPUS = ["virtual", pytest.param("real", marks=pytest.mark.gpu)]


@functools.cache
def facts(program: str, gpu: str = "virtual") -> dict[str, Any]:
    """What `programs/PROGRAM.py` printed in its last line; it is run once on each kind of GPU."""
    prelude = [str(HERE / "prelude.py")] if gpu == "virtual" else []
    printed: dict[str, Any] = last_line([*prelude, str(HERE / "programs" / f"{program}.py")])
    return printed


def last_line(arguments: list[str], cwd: Path | None = None) -> Any:
    """The last line that a Python program printed, as JSON."""
    done = succeeded([sys.executable, "-X", "faulthandler", *arguments], cwd=cwd)
    return json.loads(done.stdout.splitlines()[-1])
