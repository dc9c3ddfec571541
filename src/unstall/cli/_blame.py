"""`unstall run --blame`: runs the program, and says which line's work failed on the device."""

from __future__ import annotations

import argparse
import math
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._arguments import add_value
from unstall.cli._output import deliver
from unstall.cli._recording import say
from unstall.errors import UsageError
from unstall.launching.launch import leave_as

if TYPE_CHECKING:
    from unstall.blaming.hangs.watch import Watcher
    from unstall.blaming.result import BlameResult, Hang
    from unstall.blaming.supervise import Ended

_RECORDING = ("warmup", "steps", "after", "for_", "stop", "shapes", "trace", "keep_arguments", "against")
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_EARLIER = 2
"""With --pin-down, waiting begins so many iterations before the one that failed."""


def add_blame_options(parser: argparse.ArgumentParser) -> None:
    """Adds --blame, and what it is told."""
    group = parser.add_argument_group("faults and hangs")
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
    add_value(
        group,
        "--hang-after",
        "TIME",
        parse_hang_after,
        "with --blame: say where the program is if nothing has moved for this time: 60s, 2m, or never "
        "(default: 20 times its longest pause, at least 60s)",
    )
    group.add_argument(
        "--end-hung", action="store_true", help="with --blame: end a program that hangs, with exit code 124"
    )


def parse_hang_after(text: str) -> float:
    """Parses seconds or minutes; infinity for "never". Raises UsageError for anything else."""
    if text == "never":
        return math.inf
    found = _TIME.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise UsageError(f"{text!r} is no time: give seconds or minutes, such as 60s or 2m, or never")
    return seconds


def check_blame(args: argparse.Namespace) -> None:
    """Raises UsageError for options that make no sense together, or if lines cannot be read here."""
    for name in ("pin_down", "hang_after", "end_hung"):
        option = "--" + name.replace("_", "-")
        if getattr(args, name) and not args.blame:
            raise UsageError(f"{option} needs --blame")
        if getattr(args, name) and args.gpu and name != "pin_down":
            raise UsageError(
                f"{option} watches a real GPU: a virtual one has no clock of its own, so leave it out with --gpu"
            )
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
    from unstall.blaming.hangs.document import HangReport

    ended = _supervised(args, program)
    result = ended.result
    if result and args.pin_down and _is_open(result):
        say("the program runs again, and waits after the work of the lines that may have failed")
        ended = _supervised(args, program, _pinned(result), anomaly=any(each.backward for each in result.suspects))
        if ended.result and ended.result.error:
            result = ended.result
        else:
            say("the fault did not come back: this is what the first run told")
    if result is None:
        say(f"nothing is known of faults: {ended.missing}")
    elif not result.error and not result.hang and not args.quiet:
        say(NO_FAULT)
    if result is not None and result.hang and not result.error:
        if args.output or args.format:  # it was printed when it was found
            deliver(HangReport(result), argparse.Namespace(**{**vars(args), "quiet": True}))
    elif result is not None and (result.error or args.output or args.format):
        again = shlex.join(
            ["unstall", "run", *args.words[1 : len(args.words) - len(args.program)], "--pin-down", *program]
        )
        with nullcontext() if args.format else redirect_stdout(sys.stderr):
            deliver(Blame(result, again), args)
    return leave_as(ended.exit)


def _watcher(args: argparse.Namespace, folder: Path, program: Sequence[str]) -> Watcher:
    """Returns who prints a hang when it is found; files get it then, too, as the program may be killed for it."""
    from unstall.blaming.hangs.document import HangReport
    from unstall.blaming.hangs.watch import Wanted, Watcher
    from unstall.blaming.result import BlameResult

    def tell(hang: Hang) -> None:
        printed = argparse.Namespace(**{**vars(args), "format": None, "quiet": False, "full": True})
        with redirect_stdout(sys.stderr):
            deliver(HangReport(BlameResult(program=program[program[0] == "-m"], hang=hang)), printed)

    after = args.hang_after
    wanted = Wanted(None if after == math.inf else after, end=args.end_hung, never=after == math.inf)
    return Watcher(folder, wanted, tell, say)


def _supervised(args: argparse.Namespace, program: Sequence[str], pinned: str = "", *, anomaly: bool = False) -> Ended:
    from unstall.blaming.supervise import make_folder, supervise

    folder = make_folder()
    try:
        return supervise(
            program,
            folder,
            pinned=pinned,
            anomaly=anomaly,
            stdout_to_stderr=bool(args.format),
            watcher=_watcher(args, folder, program),
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
