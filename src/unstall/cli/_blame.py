"""`unstall run --blame`: runs the program, and says which line's work failed on the device."""

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
from unstall.cli._arguments import add_value, parse_file
from unstall.cli._output import deliver
from unstall.cli._recording import say
from unstall.errors import UsageError
from unstall.launching.launch import leave_as

if TYPE_CHECKING:
    from unstall.blaming.result import BlameResult
    from unstall.blaming.supervise import Ended

_RECORDING = ("warmup", "steps", "after", "for_", "stop", "shapes", "trace", "keep_arguments", "against")
CORES_PREFIX = "unstall-core-"
_DISARMED = (
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION is set, but a run with --blame gives no core dump: the driver writes none in a "
    "program that CUPTI follows"
)
_EARLIER = 2
"""With --pin-down, waiting begins so many iterations before the one that failed."""


def add_blame_options(parser: argparse.ArgumentParser) -> None:
    """Adds --blame and its options."""
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
        "--core-dump",
        action="store_true",
        help="after a fault that is no failed assertion, run the program once more, and read the GPU core dump of that "
        "run: the exact instruction and exception",
    )
    add_value(group, "--core-dump-to", "FILE", parse_file, "the same, and keep the core dump as FILE")


def check_blame(args: argparse.Namespace) -> None:
    """Raises UsageError for options that make no sense together, or if lines cannot be read here."""
    for option in ("pin_down", "core_dump", "core_dump_to"):
        if getattr(args, option) and not args.blame:
            raise UsageError(f"--{option.replace('_', '-')} needs --blame")
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
    from unstall.blaming.core_dump.arming import is_armed
    from unstall.blaming.document import NO_FAULT, Blame

    with_dump = args.core_dump or bool(args.core_dump_to)
    if is_armed(os.environ) and not args.quiet:
        say(_DISARMED + ("" if with_dump else ". --core-dump starts a second run that gives one"))
    told = ended = _supervised(args, program)
    if told.result and args.pin_down and _is_open(told.result):
        say("the program runs again, and waits after the work of the lines that may have failed")
        ended = _supervised(
            args, program, _pinned(told.result), anomaly=any(each.backward for each in told.result.suspects)
        )
        if ended.result and ended.result.error:
            told = ended
        else:
            say("the fault did not come back: this is what the first run told")
    result = _with_dump(args, program, told) if with_dump else told.result
    if result is None:
        say(f"nothing is known of faults: {ended.missing}")
    elif not result.error and not args.quiet:
        say(NO_FAULT)
    if result is not None and (result.error or args.output or args.format):
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
        return supervise(program, folder, pinned=pinned, anomaly=anomaly, stdout_to_stderr=bool(args.format))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_dump(args: argparse.Namespace, program: Sequence[str], told: Ended) -> BlameResult | None:
    """Returns what a run told, with the core dump of another run if the driver can write one."""
    from unstall.blaming.core_dump import arming
    from unstall.blaming.core_dump.find import Found
    from unstall.blaming.core_dump.second_run import joined, run_for_dump

    result = told.result
    if result is None or not result.error:
        return result
    if result.code == ASSERTED or result.assertion:
        return joined(told, Found(why="a failed assertion names its kernel without one"))
    with tempfile.TemporaryDirectory(prefix=CORES_PREFIX, ignore_cleanup_errors=True) as folder:  # a dump may be large
        variables, why = arming.variables(os.environ, Path(folder))
        if why:
            return joined(told, Found(why=why))
        say("the program runs again, for a core dump")
        found = run_for_dump(program, Path(folder), variables, told.exit, stdout_to_stderr=bool(args.format))
        if found.file and args.core_dump_to:
            shutil.copyfile(found.file, args.core_dump_to)
            if not args.quiet:
                say(f"the core dump is kept as {args.core_dump_to}")
    return joined(told, found)


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
