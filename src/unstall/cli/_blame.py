"""`unstall run --blame`: runs a program, and says which line's work failed on the device."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.blaming.causes import ASSERTED
from unstall.cli._output import deliver
from unstall.cli._recording import say
from unstall.launching.launch import leave_as

if TYPE_CHECKING:
    from unstall.blaming.hangs.watch import Watcher
    from unstall.blaming.result import BlameResult, Hang
    from unstall.blaming.supervise import Ended

_CORES_PREFIX = "unstall-core-"
_EARLIER = 2
"""With --pin-down, the host begins to wait this many iterations before the iteration that failed."""


def run_blamed(args: argparse.Namespace, program: Sequence[str]) -> int:
    """Runs a program, and reports which line's work failed on the device. Returns the exit code.

    Args:
        args: The parsed arguments.
        program: The program and its arguments.
    """
    with_dump = args.core_dump or bool(args.core_dump_to)
    told, last = _run(args, program)
    result = _with_dump(args, program, told) if with_dump else told.result
    if last.missing:
        say(f"nothing is known of faults: {last.missing}")
    if result is not None:
        _say_what_was_not_seen(args, result, is_known=not last.missing)
        _deliver(args, program, result)
    return leave_as(last.exit)


def _run(args: argparse.Namespace, program: Sequence[str]) -> tuple[Ended, Ended]:
    """Runs the program. Runs it again if --pin-down is given and a second run can tell more.

    Returns (told, last): `told` is the run that says most about the fault, and `last` is the last run.
    """
    first = supervised(args, program)
    if not (first.result and args.pin_down and _is_open(first.result)):
        return first, first
    say("the program runs again, and waits after the work of the lines that may have failed")
    in_backward = any(each.backward for each in first.result.suspects)
    last = supervised(args, program, _pinned(first.result), anomaly=in_backward)
    if last.result and last.result.error:
        return last, last
    say("the fault did not come back: this is what the first run told")
    return first, last


def _say_what_was_not_seen(args: argparse.Namespace, result: BlameResult, *, is_known: bool) -> None:
    from unstall.blaming.document import NO_FAULT
    from unstall.blaming.races.words import NO_RACE

    if is_known and not result.error and not result.hang and not args.quiet:
        say(NO_FAULT)
    if result.races == () and result.races_missing:
        say(f"{NO_RACE}, but races may be missing: {result.races_missing}")
    elif result.races == () and not args.quiet:
        say(NO_RACE)


def _deliver(args: argparse.Namespace, program: Sequence[str], result: BlameResult) -> None:
    """Prints the report, and writes the report to the files that -o names."""
    from unstall.blaming.document import Blame
    from unstall.blaming.hangs.document import HangReport

    wanted, found = args.output or args.format, result.error or result.races
    if result.hang and not found:
        if wanted:  # it was printed when it was found
            deliver(HangReport(result), argparse.Namespace(**{**vars(args), "quiet": True}))
    elif found or wanted:
        options = args.words[1 : len(args.words) - len(args.program)]
        again = shlex.join(["unstall", "run", *options, "--pin-down", *program])
        with nullcontext() if args.format else redirect_stdout(sys.stderr):
            deliver(Blame(result, again), args)


def _watcher(args: argparse.Namespace, folder: Path, program: Sequence[str]) -> Watcher:
    """Returns a watcher for hangs of the program.

    When the watcher finds a hang, it immediately prints the report and writes the files that -o names. The program may
    be killed soon after that.
    """
    from unstall.blaming.hangs.document import HangReport
    from unstall.blaming.hangs.watch import Wanted, Watcher
    from unstall.blaming.result import BlameResult

    def tell(hang: Hang) -> None:
        printed = argparse.Namespace(**{**vars(args), "format": None, "quiet": False, "full": True})
        with redirect_stdout(sys.stderr):
            deliver(HangReport(BlameResult(program=program[program[0] == "-m"], hang=hang)), printed)

    return Watcher(folder, Wanted(args.hang_after, end=args.end_hung), tell, say)


def supervised(args: argparse.Namespace, program: Sequence[str], pinned: str = "", *, anomaly: bool = False) -> Ended:
    """Runs a program once. Returns how it ended, and what is known of its faults (errors of the
    device), hangs and races.

    Args:
        args: The parsed arguments.
        program: The program and its arguments.
        pinned: Lines of the program: FILE:LINE:VISIT, separated by newlines. From the VISIT-th
            execution of the line on, the host waits for the work that the line launches. "" for no
            lines.
        anomaly: Whether to turn on torch's anomaly mode, in which torch stores the forward stack of
            each backward op.
    """
    from unstall.blaming.supervise import make_folder, supervise

    folder = make_folder()
    try:
        return supervise(
            program,
            folder,
            pinned=pinned,
            anomaly=anomaly,
            races=args.races,
            stdout_to_stderr=bool(args.format),
            watcher=_watcher(args, folder, program),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_dump(args: argparse.Namespace, program: Sequence[str], told: Ended) -> BlameResult | None:
    """Returns the result of a run. If work failed on the device, runs the program again for a core dump of the GPU.

    Adds the content of the core dump to the result, or the reason why there is no core dump. After a failed assertion,
    does not run the program again, because the assertion names the kernel that failed. Returns None if `told` has no
    result.
    """
    from unstall.blaming.core_dump import arming
    from unstall.blaming.core_dump.find import Found
    from unstall.blaming.core_dump.second_run import joined, run_for_dump

    result = told.result
    if result is None or not result.error:
        return result
    if result.code == ASSERTED or result.assertion:
        return joined(told, Found(why="a failed assertion names its kernel without one"))
    with tempfile.TemporaryDirectory(prefix=_CORES_PREFIX, ignore_cleanup_errors=True) as folder:  # a dump may be large
        variables, why = arming.variables(os.environ, Path(folder))
        if why:
            return joined(told, Found(why=why))
        say("the program runs again, for a core dump")
        found = run_for_dump(program, Path(folder), variables, told.exit, stdout_to_stderr=bool(args.format))
        if found.file and args.core_dump_to:
            _keep(found.file, args)
    return joined(told, found)


def _keep(dump: Path, args: argparse.Namespace) -> None:
    try:
        shutil.copyfile(dump, args.core_dump_to)
    except OSError as error:
        say(f"the core dump cannot be kept as {args.core_dump_to}: {error.strerror or error}")
    else:
        if not args.quiet:
            say(f"the core dump is kept as {args.core_dump_to}")


def _is_open(result: BlameResult) -> bool:
    """Returns whether a second run can tell more: which of several lines failed, or which forward line a backward
    operator belongs to.
    """
    from unstall.blaming.document import is_certain

    return not is_certain(result) or any(suspect.backward for suspect in result.suspects)


def _pinned(result: BlameResult) -> str:
    """Returns a text that lists source lines. In a second run, the host waits for the device after these lines have
    launched work.

    Each line of the text has the form "FILE:LINE:VISIT" (see `_marks.h`).
    """
    lines = {}
    for suspect in result.suspects:
        since = max(1, (suspect.iteration or 1) - _EARLIER)
        for line in (suspect.where, suspect.replayed, *suspect.others):
            if line is not None:
                lines[line.file, line.line] = since if line is suspect.where else 1
    return "".join(f"{file}:{line}:{since}\n" for (file, line), since in lines.items())
