"""Explain a recorded run: where the time went, which line, and why.

TRACE is a file that `unstall run` or torch.profiler wrote (.json, .json.gz), or a timeline that --save-timeline wrote.
It may also be a text with the table that key_averages().table() prints: then the report says what a table can tell.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.budgets.limits import EXPOSED, IDLE
from unstall.cli._arguments import add_place_options, add_plain_step_options, add_value, parse_file
from unstall.cli._budget_options import add_budget_options, budget_of, deliver_checked
from unstall.cli._inputs import name_of, read_timeline, readable
from unstall.cli._output import add_output_options, check_outputs, check_replaced, deliver
from unstall.cli._progress import working
from unstall.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="the file to explain; - for stdin")
    add_place_options(parser)
    add_plain_step_options(parser)
    add_value(
        parser,
        "--save-timeline",
        "FILE",
        parse_file,
        "save the timeline to FILE, which is faster to read than the trace",
    )
    add_output_options(parser, it="the report", largest="costliest findings and lines", but="only the reports that")
    add_budget_options(parser, (IDLE, EXPOSED))


def run(args: argparse.Namespace) -> int:
    check_outputs(args, args.trace, others=[args.save_timeline])
    from unstall.answers.explain import explain
    from unstall.read import is_timeline
    from unstall.read.profiler_table import is_profiler_table

    if args.save_timeline and not is_timeline(Path(args.save_timeline)):
        check_replaced(Path(args.save_timeline), (".unstall",), "timeline")

    with readable(args.trace) as file:
        if is_profiler_table(file):
            return _explain_table(file, args)
        timeline = read_timeline(str(file), quiet=args.quiet)
    if file != Path(args.trace):
        timeline = timeline.with_meta(path=name_of(args.trace))
    with working("analysing the run", quiet=args.quiet):
        report = explain(
            timeline,
            step=args.step,
            user=args.user,
            plain_step_ns=args.plain_step_ns,
            as_recorded=args.as_recorded,
        )
    if args.save_timeline:
        from unstall.report.scrub import scrub_timeline

        saved = scrub_timeline(timeline, report.result) if args.scrub_paths else timeline
        saved.save(args.save_timeline)
    return deliver_checked(report, args)


def _explain_table(file: Path, args: argparse.Namespace) -> int:
    """Explains a profiler's table. Raises UsageError if an option needs a timeline."""
    from unstall.answers.table import table_answer

    options = {
        "--save-timeline": args.save_timeline,
        "--step": args.step,
        "--plain-step-ms": args.plain_step_ns,
        "a budget": budget_of(args).limits(),
    }
    for option, given in options.items():
        if given:
            raise UsageError(f"{name_of(args.trace)}: this is a profiler's table, and {option} needs a timeline")
    deliver(table_answer(file, name_of(args.trace)), args)
    return 0
