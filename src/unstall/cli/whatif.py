"""Predict what changes would gain: replay a recorded run with the changes made.

TRACE is a trace or a saved timeline, as for `unstall explain`, whose findings name the edits to try. Several edits are
made one after the other. Without an edit, it shows how well the replay agrees with the recorded run.
"""

from __future__ import annotations

import argparse
import sys

from unstall.cli._arguments import add_output_group, add_plain_step_options, add_quiet_option, add_user_option
from unstall.cli._inputs import read_timeline
from unstall.files import check_targets
from unstall.report.what_if.formats import FORMATS, format_of


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="the recorded run; - for stdin")
    parser.add_argument(
        "--edit",
        metavar="EDIT",
        action="append",
        default=[],
        help="a change to make: remove-syncs, pin-copies, reuse-pinned, make-on-device, read-later, overlap-copies, "
        "keep-cache (each also with :FILE:LINE, :FILE:LINE:OP or :OP), graph[:FILE:FUNCTION], leave-out:FILE:FUNCTION, "
        "host-speed:K, kernel-speed:K[:FILE:LINE]; may be repeated",
    )
    add_plain_step_options(parser)
    parser.add_argument("--step", metavar="NAME", help="the name of the annotation around one step (default: found)")
    add_user_option(parser)
    add_quiet_option(add_output_group(parser, FORMATS))


def run(args: argparse.Namespace) -> int:
    for path in args.output:
        format_of(path, args.format)
    check_targets(args.output, [args.trace])
    from unstall.diagnose.what_if import what_if
    from unstall.files import write_atomically
    from unstall.report.what_if import terminal
    from unstall.report.what_if.formats import render

    answer = what_if(
        read_timeline(args.trace, quiet=args.quiet),
        args.edit,
        plain_step_ns=args.plain_step_ns,
        as_recorded=args.as_recorded,
        step=args.step,
        user=args.user,
    )
    for path in args.output:
        text = render(answer.result, format_of(path, args.format), runs=answer.runs)
        write_atomically(path, text.encode(errors="replace"))
    if args.format:
        sys.stdout.write(render(answer.result, args.format, runs=answer.runs))
    elif not args.quiet:
        terminal.show(answer.result)
    return 0
