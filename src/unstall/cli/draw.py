"""Draw a step as a graph: its operators, what each needs, its critical path, and what could run in parallel.

    unstall run --gpu h200 train.py
    unstall draw -o graph.html
    unstall draw train.trace.json.gz --step 3 -o graph.svg

TRACE is a trace or a saved timeline; by default, that of the last run in this folder. A run on a virtual GPU (--gpu)
knows which operator needs which data. Any other trace knows only streams and waits. If there are more than 200
operators, those of a source line are drawn as one.
"""

from __future__ import annotations

import argparse

from unstall.cli._arguments import add_user_option
from unstall.cli._inputs import read_report
from unstall.cli._last import last_run
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.document.formats import FORMATS_OF_GRAPHS
from unstall.figures import parse_whole


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", metavar="TRACE", nargs="?", help="a trace, or a saved timeline; - for stdin (default: the last run's)"
    )
    parser.add_argument(
        "--step", metavar="N", type=parse_whole, help="the number of the step, from 1 on (default: the median one)"
    )
    add_user_option(parser)
    add_output_options(
        parser, it="the graph", largest="longest rows of each table", but="only what", formats=FORMATS_OF_GRAPHS
    )


def run(args: argparse.Namespace) -> int:
    from unstall.answers.drawn import Drawn

    path = args.trace or str(last_run())
    check_outputs(args, path)
    report = read_report(path, quiet=args.quiet, user=args.user)
    deliver(Drawn.of(report, args.step), args)
    return 0
