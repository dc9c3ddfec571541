"""Explain a recorded run: where the time went, which line, and why.

TRACE is a file that torch.profiler wrote (.json, .json.gz), or a timeline that --save-timeline wrote.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._budgets import add_budget_options, check_budgets
from unstall.cli._inputs import name_of, readable
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.errors import TraceError

if TYPE_CHECKING:
    from unstall.timeline import Timeline


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="the file to explain; - for stdin")
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
    check_outputs(args, args.trace, others=[args.save_timeline])
    from unstall import explain

    timeline = _read(args.trace, quiet=args.quiet)
    report = explain(timeline, step=args.step, user=args.user)
    if args.save_timeline:
        from unstall.report.scrub import scrub_timeline

        saved = scrub_timeline(timeline, report.result) if args.scrub_paths else timeline
        saved.save(args.save_timeline)
    deliver(report, args)
    return check_budgets(report.result, args)


def _read(path: str, *, quiet: bool) -> Timeline:
    from unstall import load
    from unstall.cli._progress import loading

    with readable(path) as file, loading(str(file), quiet=quiet) as progress:
        try:
            timeline = load(file, progress=progress)
        except TraceError as error:
            if _is_result(file):
                raise TraceError(f"{path}: this is a result; `unstall report {path}` shows it again") from error
            raise
    return replace(timeline, meta=replace(timeline.meta, path=name_of(path))) if file != Path(path) else timeline


def _is_result(file: Path) -> bool:
    from unstall.report import json

    with suppress(TraceError):
        json.read(file)
        return True
    return False
