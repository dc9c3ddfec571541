"""Runs a module of this package that measures in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping


def run_module(
    name: str,
    asked: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> str:
    """Runs a module in a new process, and returns what it printed.

    Args:
        name: The module's name.
        asked: What the module reads from its standard input, as JSON.
        environment: Variables to set in addition.
        seconds: After this time, the process is killed. None: it may take as long as it does.

    Raises:
        RuntimeError: The module failed, or took too long. The message is the last line of its error output.
    """
    try:
        ran = subprocess.run(
            [sys.executable, "-m", name],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | dict(environment or {}),
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it took longer than {error.timeout:g} s") from error
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().rpartition("\n")[2] or f"exit code {ran.returncode}")
    return ran.stdout
