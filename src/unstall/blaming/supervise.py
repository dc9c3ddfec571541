"""Runs a program that can be blamed, and reads what it left when it has ended."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.blaming.assertions import Assertions
from unstall.blaming.child import RING, STATE
from unstall.blaming.result import BlameResult
from unstall.blaming.ring import read_ring
from unstall.blaming.verdict import verdict
from unstall.launching.launch import Exit, launch
from unstall.launching.passing_on import passed_on

_SHARED_MEMORY = Path("/dev/shm")
PREFIX = "unstall-blame-"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and its fault. `missing`: why nothing is known of it."""

    exit: Exit
    result: BlameResult | None
    missing: str = ""


def make_folder() -> Path:
    """Returns a new folder, in shared memory if there is some: the ring is written with every launch."""
    where = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
    except OSError:
        return Path(tempfile.mkdtemp(prefix=PREFIX))


def supervise(program: Sequence[str], folder: Path, *, pinned: str = "", stdout_to_stderr: bool = False) -> Ended:
    """Runs the program, which leaves its ring in `folder`, and returns how it ended.

    Raises:
        UsageError: The program cannot be started.
    """
    assertions = Assertions()
    settings = json.dumps({"folder": str(folder), "pinned": pinned})
    with passed_on(assertions.see) as stderr:
        ended = launch(program, "unstall.blaming.child", settings, stdout_to_stderr=stdout_to_stderr, stderr=stderr)
    state = _state(folder)
    if "failed" in state:
        return Ended(ended, None, str(state["failed"]))
    if not (folder / RING).exists():
        return Ended(ended, None, "the program ended before it was armed")
    result = verdict(read_ring(folder / RING), assertion=assertions.first, program=" ".join(program[:2]))
    return Ended(ended, result)


def _state(folder: Path) -> dict[str, object]:
    try:
        state: dict[str, object] = json.loads((folder / STATE).read_text())
    except (OSError, ValueError):
        return {}
    return state
