"""Runs a program with `--blame`. When the program has ended, reads the files that the program wrote
about its work and its fault.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unstall.blaming.assertions import Assertions
from unstall.blaming.child import ENDING, FORWARD, RING, STATE
from unstall.blaming.hangs import arming
from unstall.blaming.hangs.processes import PREFIX, SHARED_MEMORY
from unstall.blaming.hangs.room import spare_room
from unstall.blaming.hangs.watch import Watcher
from unstall.blaming.races.saved import read_races
from unstall.blaming.result import BlameResult, Ending, Line
from unstall.blaming.ring import Ring, read_ring
from unstall.blaming.verdict import verdict
from unstall.decoding import from_json
from unstall.frameworks import is_users
from unstall.launching.children import arming_children
from unstall.launching.launch import Exit, launch
from unstall.launching.passing_on import passed_on

HUNG = 124
"""The exit code of `unstall run` if unstall ended the program because the program hung. timeout(1)
uses the same exit code.
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what is known of its fault (an error of the device).

    Attributes:
        exit: How the program ended.
        result: What is known about faults, hangs and races; None if nothing is known.
        missing: Why it is not known whether the program had a fault; "" if it is known.
        ring: The work that the program put on streams; None if the program recorded no work.
    """

    exit: Exit
    result: BlameResult | None
    missing: str = ""
    ring: Ring | None = None


def make_folder() -> Path:
    """Creates a temporary folder for the files in which a program records its work. If possible,
    the folder is in shared memory, because the program writes to it at every kernel launch.
    """
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
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
    watcher: Watcher | None = None,
) -> Ended:
    """Runs a program until it ends, and finds out whether and where its work on the device failed.

    Args:
        program: The program and its arguments.
        folder: The folder in which the program records its work.
        pinned: Lines of the program: FILE:LINE:VISIT, separated by newlines. From the VISIT-th
            execution of the line on, the host waits for the work that the line launches. "" for no
            lines.
        anomaly: Whether to turn on torch's anomaly mode, in which torch stores the forward stack of
            each backward op.
        races: Whether to look for races too.
        stdout_to_stderr: Whether the program's stdout goes to stderr.
        watcher: Looks for hangs of the program, and of the Python processes that the program
            starts. If its user has turned off the search for hangs, the started processes are not
            watched. None to look for no hangs.

    Raises:
        UsageError: The program cannot be started.
    """
    assertions = Assertions()
    settings = json.dumps({"folder": str(folder), "pinned": pinned, "anomaly": anomaly, "races": races})
    with ExitStack() as around:
        stderr = around.enter_context(passed_on(assertions.see))
        if watcher and not watcher.wanted.never:
            around.enter_context(spare_room(folder))
            around.enter_context(arming_children(arming.MODULE, {arming.FOLDER: str(folder)}, optional=True))
        around.enter_context(watcher or nullcontext())
        ended = launch(program, "unstall.blaming.child", settings, stdout_to_stderr=stdout_to_stderr, stderr=stderr)
    hang = watcher.hang if watcher else None
    if hang and hang.ended:
        ended = Exit(HUNG)
    result = BlameResult(program=program[program[0] == "-m"], hang=hang)
    if races:
        result = with_races(result, folder)
    state, has_ring = _state(folder), (folder / RING).exists()
    if "failed" in state or not has_ring:
        why = str(state["failed"]) if "failed" in state else "the program ended before it was armed"
        return Ended(ended, result if hang or races else None, why)
    ring = read_ring(folder / RING)
    of_fault = verdict(ring, assertion=assertions.first, program=result.program)
    known = _ending(folder)
    result = msgspec.structs.replace(
        of_fault,
        tensors=known.tensors,
        traceback=known.traceback,
        hang=hang,
        races=result.races,
        races_missing=result.races_missing,
    )
    if (forward := _forward(folder)) and result.suspects:
        first = msgspec.structs.replace(result.suspects[0], forward=forward)
        result = msgspec.structs.replace(result, suspects=(first, *result.suspects[1:]))
    return Ended(ended, result, ring=ring)


def with_races(result: BlameResult, folder: Path) -> BlameResult:
    """Returns a copy of a result, to which the races are added that the program saved to a file in `folder`."""
    seen = read_races(folder)
    return msgspec.structs.replace(result, races=seen.races, races_missing=seen.missing)


_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)\n?(?P<source>.*)')


def _forward(folder: Path) -> tuple[Line, ...]:
    """Returns the lines of the user's code that called the forward op, innermost first."""
    try:
        stack = json.loads((folder / FORWARD).read_text())["stack"]
    except (OSError, ValueError, KeyError):
        return ()
    frames = [found for text in stack if (found := _FRAME.match(text))]
    return tuple(
        Line(frame["file"], int(frame["line"]), frame["function"], frame["source"].strip())
        for frame in reversed(frames)
        if is_users(frame["file"])
    )


def _ending(folder: Path) -> Ending:
    try:
        return from_json((folder / ENDING).read_bytes(), Ending)
    except (OSError, msgspec.DecodeError):
        return Ending()


def _state(folder: Path) -> dict[str, object]:
    try:
        state: dict[str, object] = json.loads((folder / STATE).read_text())
    except (OSError, ValueError):
        return {}
    return state
