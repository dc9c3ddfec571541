"""Explain a recorded run: where the time went, which line, and why.

TRACE is a file that torch.profiler wrote (.json, .json.gz), or a timeline that --save-timeline wrote.
"""

from __future__ import annotations

import argparse
import sys

from unstall.cli._budgets import add_budget_options, exceeded
from unstall.cli._output import add_output_options, check_outputs, deliver


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="the file to explain")
    parser.add_argument("--step", metavar="NAME", help="the annotation around one step (default: found)")
    parser.add_argument(
        "--user",
        metavar="GLOB",
        action="append",
        default=[],
        help="count only these files as yours, such as 'src/*'; may be repeated",
    )
    parser.add_argument("--save-timeline", metavar="FILE", help="save what was read, to be read faster again")
    add_output_options(parser)
    add_budget_options(parser)


def run(args: argparse.Namespace) -> int:
    check_outputs(args)
    from unstall import explain, load
    from unstall.cli._progress import loading

    with loading(args.trace, quiet=args.quiet) as progress:
        timeline = load(args.trace, progress=progress)
    if args.save_timeline:
        timeline.save(args.save_timeline)
    report = explain(timeline, step=args.step, user=args.user)
    deliver(report, args)
    over = exceeded(report.result, args)
    for sentence in over:
        print(f"unstall: {sentence}", file=sys.stderr)
    return 1 if over else 0
