"""What programs are told by the keeper, each in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@functools.cache
def facts(program: str, *arguments: str, settings: str = "") -> dict[str, Any]:
    """What `programs/PROGRAM.py` printed in its last line, with those settings of the allocator; it is run once."""
    done = run(program, *arguments, settings=settings)
    assert done.returncode == 0, done.stderr[-4000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def run(program: str, *arguments: str, settings: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unstall.virtual", str(PROGRAMS / f"{program}.py"), *arguments]
    environment = os.environ | {"PYTORCH_ALLOC_CONF": settings}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


@pytest.mark.slow
def test_every_thread_has_a_clock_of_its_own_by_which_it_sleeps_and_asks_for_events() -> None:
    read = facts("threads")
    assert read["slept"] == pytest.approx(0.5, abs=1e-3)
    assert read["polls"] == 4
    assert 0 <= read["begins_after"] < 1e-3
    assert read["done_at_once"] is False
    assert read["done_after_its_sleep"] is True
