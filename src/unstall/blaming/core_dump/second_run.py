"""Runs a program a second time to get a core dump of the fault that ended its first run. Adds the
dump to the first run's result.

The first run writes no core dump, because core dumps change how a program behaves: it notices a
fault later, and gets a different error for a failed assertion.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from unstall.blaming.assertions import FirstLine
from unstall.blaming.causes import LAUNCH_FAILED
from unstall.blaming.core_dump.arming import PROCESS
from unstall.blaming.core_dump.find import Found, find
from unstall.blaming.core_dump.result import CoreDump
from unstall.blaming.result import BlameResult
from unstall.blaming.supervise import Ended
from unstall.blaming.verdict import verdict
from unstall.launching.launch import Exit, launch
from unstall.launching.passing_on import passed_on

_REFUSAL = re.compile(r"CUDA coredump is not supported[^.]{0,300}")


def run_for_dump(
    program: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    first: Exit,
    *,
    stdout_to_stderr: bool = False,
) -> Found:
    """Runs a program again, and reads the core dump that the program writes.

    Args:
        program: The program and its arguments.
        folder: The folder for the dump. If the user's own environment variables name another place
            for core dumps, the dump goes to that place instead.
        variables: The environment variables that make the program write a core dump, as
            `arming.variables` returned them.
        first: How the first run ended.
        stdout_to_stderr: Whether the program's stdout goes to stderr.

    Returns:
        What was found. Its field `why` says why there is no dump, if that is known.

    Raises:
        UsageError: The program cannot be started.
    """
    refusal, began_s = FirstLine(b"coredump", _REFUSAL), time.time()
    with passed_on(refusal.see) as stderr:
        ended = launch(
            program,
            "unstall.blaming.core_dump.arming",
            str(folder),
            stdout_to_stderr=stdout_to_stderr,
            stderr=stderr,
            variables=variables,
        )
    noted = folder / PROCESS
    if not noted.exists():
        return Found(why="the second run ended before it was armed")
    found = find({**os.environ, **variables}, int(noted.read_text()), began_s)
    if found.file:
        return found
    if refusal.first:
        return Found(why=f"in the second run the driver said: {refusal.first}")
    if first.code and not ended.code:
        return Found(why="the fault did not come back in the second run")
    return Found(why="the driver wrote none in the second run")


def joined(first: Ended, found: Found) -> BlameResult | None:
    """Returns the result of a first run, to which the core dump of a second run is added. Returns
    None if the first run has no result.

    Suspects (lines whose work may have failed) are removed if they did not launch the kernel that
    failed in the dump. If the second run wrote no dump of the same fault, the field `no_dump` gets
    the reason instead.

    Args:
        first: How the first run ended.
        found: The search for the core dump of the second run.
    """
    result, dump = first.result, found.dump
    if result is None or first.ring is None:
        return result
    why = found.why if dump is None else _is_another(result, dump)
    if why:
        return msgspec.structs.replace(result, no_dump=why)
    told = verdict(first.ring, program=result.program, dump=dump)
    suspects, tensors = told.suspects, result.tensors[:0]
    if suspects and suspects[0].where == result.suspects[0].where:  # of this line the first run told more
        tensors = result.tensors
        suspects = (msgspec.structs.replace(suspects[0], forward=result.suspects[0].forward), *suspects[1:])
    return msgspec.structs.replace(result, suspects=suspects, tensors=tensors, noticed=told.noticed, dump=dump)


def _is_another(result: BlameResult, dump: CoreDump) -> str:
    """Returns the reason why `dump` does not show the fault in `result`; "" if the dump shows this fault."""
    exception = dump.exception
    if exception is None:
        return "that of the second run has no exception: the fault did not come back"
    if exception.error in (result.code, LAUNCH_FAILED) or result.code == LAUNCH_FAILED:
        return ""
    return f"the second run had another fault, {exception.name} ({exception.words})"
