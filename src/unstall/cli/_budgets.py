"""Budgets: limits on a run's cost; above them a verb exits with 1."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from unstall.cli._arguments import named
from unstall.errors import TraceError
from unstall.figures import duration, parse_duration, parse_share, share

if TYPE_CHECKING:
    from unstall.result import Result


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """Adds --max-idle and --max-exposed."""
    group = parser.add_argument_group("budgets", "exit with 1 if the recorded run exceeds one of these")
    group.add_argument(
        "--max-idle",
        metavar="PERCENT",
        type=named("--max-idle", parse_share),
        help="the share of a step that the device may idle, such as 20%%",
    )
    group.add_argument(
        "--max-exposed",
        metavar="TIME",
        type=named("--max-exposed", parse_duration),
        help="the device time per step that any one finding may cost: 500us, 1ms",
    )


def check_budgets(result: Result, args: argparse.Namespace) -> int:
    """Returns the exit code, and prints exceeded budgets to stderr. Raises TraceError if no budget can be checked."""
    if args.max_idle is None and args.max_exposed is None:
        return 0
    if result.verdict.bound_by == "none":
        raise TraceError(f"{result.source.path}: the budgets cannot be checked: the run has no work on a device")
    over = _exceeded(result, args)
    for sentence in over:
        print(f"unstall: over budget: {sentence}", file=sys.stderr)
    return 1 if over else 0


def _exceeded(result: Result, args: argparse.Namespace) -> list[str]:
    """Returns a sentence for each budget that the run exceeds."""
    from unstall.document.plain import plain
    from unstall.report.wording import costly, idle_ns, origin

    over = []
    idle, wall = idle_ns(result.accounts), result.accounts.wall_ns
    if args.max_idle is not None and idle > args.max_idle * wall:
        over.append(
            f"the device is idle for {share(idle, wall)} of a step as recorded, --max-idle is {100 * args.max_idle:g} %"
        )
    if args.max_exposed is not None:
        over += [
            f"{plain(finding.title)} ({origin(finding.where)}) costs the device "
            f"{duration(finding.exposed_ns)} per step as recorded, --max-exposed is {duration(args.max_exposed)}"
            for finding in costly(result)
            if finding.exposed_ns > args.max_exposed
        ]
    return over
