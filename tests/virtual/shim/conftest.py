"""What programs on the virtual GPU do: each setting of it in one process, as torch takes seconds to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unstall.virtual.shim.build import build
from unstall.virtual.shim.installed import VirtualGpuError, installed_torch

PROGRAM = Path(__file__).parent / "virtual_program.py"
SOURCE = Path(__file__).parents[3] / "src"


def facts_of(numerics: str) -> dict[str, Any]:
    """What the program says, by name."""
    try:
        build(installed_torch())
    except VirtualGpuError as error:
        pytest.skip(str(error))
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), numerics],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.fixture(scope="session")
def real() -> Callable[[str], Any]:
    """Facts of programs whose values are computed."""
    return facts_of("real").__getitem__


@pytest.fixture(scope="session")
def skipped() -> Callable[[str], Any]:
    """Facts of programs of which only shapes are computed, and what is small."""
    return facts_of("skip").__getitem__
