"""Runs a program a second time to get a core dump of the program's fault, and adds the dump to the first run's result.

The first run writes no core dump, because core dumps change how the program behaves. With core dumps, the program would
notice a fault later, and would get a different error for a failed assertion.
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
    """Runs the program with the environment variables `variables`, and reads the core dump that the program writes.

    Args:
        program: The program and its arguments.
        folder: The folder for the dump. If the user's own environment variables name a place for the dump, the dump
            goes to that place instead.
        variables: The environment variables that `arming.variables` returned.
        first: How the first run ended.
        stdout_to_stderr: Whether the program's stdout goes to stderr.

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
    """Returns the first run's result, to which the second run's core dump is added.

    Suspects that did not launch the failed kernel are removed. If the second run wrote no dump of this fault, the
    reason is added instead of a dump.
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
    """Returns the reason why the dump does not show the fault in `result`; "" if the dump shows this fault."""
    exception = dump.exception
    if exception is None:
        return "that of the second run has no exception: the fault did not come back"
    if exception.error in (result.code, LAUNCH_FAILED) or result.code == LAUNCH_FAILED:
        return ""
    return f"the second run had another fault, {exception.name} ({exception.words})"
