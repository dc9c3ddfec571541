"""Show one finding: the source around its line, the line in your code that led there, and a patch if one is known.

    unstall show 1
    unstall show 2 train.trace.json.gz
    unstall show 1 --patch | git apply
    unstall show train.py:41
    unstall show train.py:41 --chain

N is the finding's number in the report. Bugs have numbers of their own (b1, b2), and so do the findings under "Good to
know" (g1). If a finding has no number, name it by its line. With --chain, you can name any line that launches work: the
line's calls are shown link by link, from Python through torch's operators to the device, with their times. RESULT is a
trace or a saved result. By default, it is that of the last run in this folder. Source is read from .py files below this
folder, and below --source DIR.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from unstall.cli._arguments import add_user_option
from unstall.cli._inputs import STDIN, read_report
from unstall.cli._last import last_run
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.cli._recording import say
from unstall.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "number",
        metavar="N",
        help='the finding\'s number in the report (1, 2, …; b1 for a bug; g1 for "Good to know"), or FILE:LINE',
    )
    parser.add_argument(
        "result", metavar="RESULT", nargs="?", help="a trace or a saved result; - for stdin (default: the last run's)"
    )
    parser.add_argument(
        "--source",
        metavar="DIR",
        action="append",
        default=[],
        help="also look for source files below DIR; may be repeated",
    )
    parser.add_argument("--patch", action="store_true", help="print the patch alone, for git apply or patch -p1")
    parser.add_argument("--chain", action="store_true", help="show the calls from the line to the device, link by link")
    add_user_option(parser)
    add_output_options(parser, it="the finding")


def run(args: argparse.Namespace) -> int:
    from unstall.answers.chain import ShownChains
    from unstall.answers.finding import ShownFinding
    from unstall.patches.patch import Patch

    if args.chain and args.patch:
        raise UsageError("--chain shows calls and --patch a patch: say one of them")
    if args.result is None and Path(args.number).is_file():
        raise UsageError(f"the number of a finding comes before the file: unstall show 1 {shlex.quote(args.number)}")
    path = args.result or str(last_run())
    check_outputs(args, path)
    folders = [Path(folder) for folder in args.source]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--source: {folder} is no folder")
    report = read_report(path, quiet=args.quiet, user=args.user)
    if args.chain:
        deliver(ShownChains.of(report, args.number), args)
        return 0
    ran_ns = None
    with suppress(OSError):
        ran_ns = None if path == STDIN else Path(path).stat().st_mtime_ns
    timeline = report.run.timeline if report.run else None
    shown = ShownFinding.of(
        report.result,
        args.number if ":" in args.number else args.number.lower(),
        folders,
        apply=_apply(args),
        ran_ns=ran_ns,
        timeline=timeline,
    )
    if not args.patch:
        deliver(shown, args)
        return 0
    if shown.caveat:
        say(shown.caveat)
    if not isinstance(shown.patch, Patch):
        say(f"no patch: {shown.patch}")
        return 1
    if shown.caveat:  # another line may stand there now
        return 1
    if shown.patch.note:
        say(shown.patch.note)
    sys.stdout.write(shown.patch.diff)
    return 0


def _apply(args: argparse.Namespace) -> str:
    """Returns the command that applies the finding's patch."""
    given = [args.result] if args.result else []
    options = [word for folder in args.source for word in ("--source", folder)]
    return f"{shlex.join(['unstall', 'show', args.number, *given, *options, '--patch'])} | git apply"
