"""`unstall run --blame`: runs the program, and says which line's work failed on the device."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING

from unstall.cli._output import deliver
from unstall.cli._recording import say
from unstall.errors import UsageError
from unstall.launching.launch import leave_as

if TYPE_CHECKING:
    from unstall.blaming.result import BlameResult
    from unstall.blaming.supervise import Ended

_RECORDING = ("warmup", "steps", "after", "for_", "stop", "shapes", "trace", "keep_arguments", "against")
_EARLIER = 2
"""With --pin-down, waiting begins so many iterations before the one that failed."""


def add_blame_options(parser: argparse.ArgumentParser) -> None:
    """Adds --blame, --pin-down and --races."""
    group = parser.add_argument_group("faults")
    group.add_argument(
        "--blame",
        action="store_true",
        help="name the line whose work failed on the GPU; on a real GPU, no steps are recorded then",
    )
    group.add_argument(
        "--pin-down",
        action="store_true",
        help="if several lines may have failed, start a second run that waits for the GPU after each of these lines",
    )
    group.add_argument(
        "--races",
        action="store_true",
        help="with --blame on a real GPU, also find races between streams, and between GPU and host; "
        "each operator takes longer then (a virtual GPU always finds races)",
    )


def check_blame(args: argparse.Namespace) -> None:
    """Raises UsageError for options that make no sense together, or if lines cannot be read here."""
    if args.pin_down and not args.blame:
        raise UsageError("--pin-down needs --blame")
    if args.races and not args.blame:
        raise UsageError("--races needs --blame")
    if not args.blame or args.gpu:
        return
    given = [name for name in _RECORDING if getattr(args, name) not in (None, False)]
    if given:
        option = "--" + given[0].rstrip("_").replace("_", "-")
        raise UsageError(f"--blame records no steps, so {option} has no meaning with it")
    from unstall.blaming.child import unavailable

    if why := unavailable():
        raise UsageError(why)


def run_blamed(args: argparse.Namespace, program: Sequence[str]) -> int:
    """Runs the program, reports its fault, and returns its exit code."""
    from unstall.blaming.document import NO_FAULT, Blame
    from unstall.blaming.races.words import NO_RACE

    ended = _supervised(args, program)
    result = ended.result
    if result and args.pin_down and _is_open(result):
        say("the program runs again, and waits after the work of the lines that may have failed")
        ended = _supervised(args, program, _pinned(result), anomaly=any(each.backward for each in result.suspects))
        if ended.result and ended.result.error:
            result = ended.result
        else:
            say("the fault did not come back: this is what the first run told")
    if ended.missing:
        say(f"nothing is known of faults: {ended.missing}")
    elif result is not None and not result.error and not args.quiet:
        say(NO_FAULT)
    if result is not None and result.races == ():
        if result.races_missing:
            say(f"{NO_RACE}, but races may be missing: {result.races_missing}")
        elif not args.quiet:
            say(NO_RACE)
    if result is not None and (result.error or result.races or args.output or args.format):
        again = shlex.join(
            ["unstall", "run", *args.words[1 : len(args.words) - len(args.program)], "--pin-down", *program]
        )
        with nullcontext() if args.format else redirect_stdout(sys.stderr):
            deliver(Blame(result, again), args)
    return leave_as(ended.exit)


def _supervised(args: argparse.Namespace, program: Sequence[str], pinned: str = "", *, anomaly: bool = False) -> Ended:
    from unstall.blaming.supervise import make_folder, supervise

    folder = make_folder()
    try:
        return supervise(
            program, folder, pinned=pinned, anomaly=anomaly, races=args.races, stdout_to_stderr=bool(args.format)
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_open(result: BlameResult) -> bool:
    """Returns whether a second run can tell more: which of several lines failed, or the forward line of a backward."""
    from unstall.blaming.document import is_certain

    return not is_certain(result) or any(suspect.backward for suspect in result.suspects)


def _pinned(result: BlameResult) -> str:
    """Returns the lines to wait after, as `_marks.h` has them: FILE:LINE:VISIT."""
    lines = {}
    for suspect in result.suspects:
        since = max(1, (suspect.iteration or 1) - _EARLIER)
        for line in (suspect.where, suspect.replayed, *suspect.others):
            if line is not None:
                lines[line.file, line.line] = since if line is suspect.where else 1
    return "".join(f"{file}:{line}:{since}\n" for (file, line), since in lines.items())
