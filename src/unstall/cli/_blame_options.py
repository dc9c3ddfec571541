"""The options of `unstall run --blame`."""

from __future__ import annotations

import argparse
import math
import re

from unstall.cli._arguments import add_value, parse_file
from unstall.errors import UsageError

_RECORDING = ("warmup", "steps", "after", "for_", "stop", "shapes", "trace", "keep_arguments", "against")
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def add_blame_options(parser: argparse.ArgumentParser) -> None:
    """Adds the option --blame, and the options that need it, to a parser."""
    group = parser.add_argument_group("faults and hangs")
    group.add_argument(
        "--blame",
        action="store_true",
        help="name the line whose work failed on the GPU. On a real GPU, this option records no steps",
    )
    group.add_argument(
        "--pin-down",
        action="store_true",
        help="if it is not clear which of several lines failed, start a second run that waits for the GPU after each "
        "of them",
    )
    group.add_argument(
        "--core-dump",
        action="store_true",
        help="if the error does not say which kernel failed, run the program again for a core dump of the GPU, which "
        "names the kernel and its instruction",
    )
    add_value(group, "--core-dump-to", "FILE", parse_file, "like --core-dump, and keep the core dump as FILE")
    add_value(
        group,
        "--hang-after",
        "TIME",
        parse_hang_after,
        'with --blame: report a hang after this long without progress, such as 60s or 2m, or "never" (default: 20 '
        "times the longest pause so far, at least 60s)",
    )
    group.add_argument(
        "--end-hung", action="store_true", help="with --blame: end a program that hangs, with exit code 124"
    )
    group.add_argument(
        "--races",
        action="store_true",
        help="with --blame on a real GPU, also find races between streams, and between GPU and host; "
        "each operator takes longer then (on a virtual GPU, races are always looked for)",
    )


def parse_hang_after(text: str) -> float:
    """Converts a time such as "60s" or "2m" to seconds. Returns infinity for "never".

    Raises:
        UsageError: `text` is neither a time nor "never".
    """
    if text == "never":
        return math.inf
    found = _TIME.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise UsageError(f"{text!r} is no time: give seconds or minutes, such as 60s or 2m, or never")
    return seconds


def check_blame(args: argparse.Namespace) -> None:
    """Checks the options of `unstall run --blame`.

    Raises:
        UsageError: Options exclude each other, or --blame does not work on this machine.
    """
    for name in ("pin_down", "core_dump", "core_dump_to", "races", "hang_after", "end_hung"):
        option = "--" + name.replace("_", "-")
        if getattr(args, name) and not args.blame:
            raise UsageError(f"{option} needs --blame")
        if getattr(args, name) and args.gpu and name in ("hang_after", "end_hung"):
            raise UsageError(
                f"{option} watches a real GPU: a virtual one has no clock of its own, so leave it out with --gpu"
            )
    if args.end_hung and (args.core_dump or args.core_dump_to):
        raise UsageError("--end-hung and --core-dump exclude each other: the run for the dump is not watched for hangs")
    if not args.blame or args.gpu:
        return
    given = [name for name in _RECORDING if getattr(args, name) not in (None, False)]
    if given:
        option = "--" + given[0].rstrip("_").replace("_", "-")
        asked = "--races" if args.races else "--blame"
        raise UsageError(f"{asked} records no steps, so {option} has no meaning with it")
    from unstall.blaming.child import unavailable

    if why := unavailable():
        raise UsageError(why)
