"""Runs a program that can be blamed, and reads what it left when it has ended."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unstall.blaming.assertions import Assertions
from unstall.blaming.child import ENDING, FORWARD, RING, STATE
from unstall.blaming.races.saved import read_races
from unstall.blaming.result import BlameResult, Ending, Line
from unstall.blaming.ring import read_ring
from unstall.blaming.verdict import verdict
from unstall.frameworks import OURS, is_installed
from unstall.launching.launch import Exit, launch
from unstall.launching.passing_on import passed_on

_SHARED_MEMORY = Path("/dev/shm")
PREFIX = "unstall-blame-"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what is known of it. `missing`: why nothing is known of faults."""

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


def supervise(
    program: Sequence[str],
    folder: Path,
    *,
    pinned: str = "",
    anomaly: bool = False,
    races: bool = False,
    stdout_to_stderr: bool = False,
) -> Ended:
    """Runs the program, which leaves its ring in `folder`, and returns how it ended.

    `pinned`: lines to wait after (`_marks.h`). `anomaly`: torch keeps the forward line of each backward op.
    `races`: looks for races, too.

    Raises:
        UsageError: The program cannot be started.
    """
    assertions = Assertions()
    settings = json.dumps({"folder": str(folder), "pinned": pinned, "anomaly": anomaly, "races": races})
    with passed_on(assertions.see) as stderr:
        ended = launch(program, "unstall.blaming.child", settings, stdout_to_stderr=stdout_to_stderr, stderr=stderr)
    name = program[program[0] == "-m"]
    of_races = with_races(BlameResult(program=name), folder) if races else None
    state = _state(folder)
    if "failed" in state:
        return Ended(ended, of_races, str(state["failed"]))
    if not (folder / RING).exists():
        return Ended(ended, of_races, "the program ended before it was armed")
    result = verdict(read_ring(folder / RING), assertion=assertions.first, program=name)
    if races:
        result = with_races(result, folder)
    known = _ending(folder)
    result = msgspec.structs.replace(result, tensors=known.tensors, traceback=known.traceback)
    if (forward := _forward(folder)) and result.suspects:
        first = msgspec.structs.replace(result.suspects[0], forward=forward)
        result = msgspec.structs.replace(result, suspects=(first, *result.suspects[1:]))
    return Ended(ended, result)


def with_races(result: BlameResult, folder: Path) -> BlameResult:
    """Returns the result with the races that the program left in its folder."""
    seen = read_races(folder)
    return msgspec.structs.replace(result, races=seen.races, races_missing=seen.missing)


_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)\n?(?P<source>.*)')


def _forward(folder: Path) -> tuple[Line, ...]:
    """Returns the user's lines at which the forward op was called, innermost first."""
    try:
        stack = json.loads((folder / FORWARD).read_text())["stack"]
    except (OSError, ValueError, KeyError):
        return ()
    frames = [found for text in stack if (found := _FRAME.match(text))]
    return tuple(
        Line(frame["file"], int(frame["line"]), frame["function"], frame["source"].strip())
        for frame in reversed(frames)
        if not is_installed(frame["file"]) and not frame["file"].startswith(OURS)
    )


def _ending(folder: Path) -> Ending:
    try:
        return msgspec.json.decode((folder / ENDING).read_bytes(), type=Ending)
    except (OSError, msgspec.DecodeError):
        return Ending()


def _state(folder: Path) -> dict[str, object]:
    try:
        state: dict[str, object] = json.loads((folder / STATE).read_text())
    except (OSError, ValueError):
        return {}
    return state
