"""Runs a module of this package that measures in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping


def run_module(name: str, asked: Mapping[str, object], environment: Mapping[str, str] | None = None) -> str:
    """Runs a module in a new process, and returns what it printed.

    Args:
        name: The module's name.
        asked: What the module reads from its standard input, as JSON.
        environment: Variables to set in addition.

    Raises:
        RuntimeError: The module failed. The message is the last line of its error output.
    """
    ran = subprocess.run(
        [sys.executable, "-m", name],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | dict(environment or {}),
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().rpartition("\n")[2] or f"exit code {ran.returncode}")
    return ran.stdout
