"""Budgets: what a run may cost before `explain` exits with 1."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from unstall.figures import duration, parse_duration, parse_share, share

if TYPE_CHECKING:
    from unstall.result import Result


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """--max-idle, --max-exposed."""
    group = parser.add_argument_group("budgets", "exit with 1 where the run is over one")
    group.add_argument("--max-idle", metavar="SHARE", type=parse_share, help="device idle, of a step: 20%%")
    group.add_argument(
        "--max-exposed",
        metavar="TIME",
        type=parse_duration,
        help="what the device may lose because of any one finding, per step: 500us, 1ms",
    )


def exceeded(result: Result, args: argparse.Namespace) -> list[str]:
    """A sentence for each budget that the run is over, or that it cannot be held to."""
    from unstall.report.wording import idle_ns, origin, plain

    if args.max_idle is None and args.max_exposed is None:
        return []
    if result.verdict.bound_by == "none":
        return ["the budgets cannot be checked: the run has no work on a device"]
    over = []
    idle, wall = idle_ns(result.accounts), result.accounts.wall_ns
    if args.max_idle is not None and idle > args.max_idle * wall:
        over.append(
            f"over budget: the device is idle for {share(idle, wall)} of a step, "
            f"--max-idle is {100 * args.max_idle:g} %"
        )
    if args.max_exposed is not None:
        over += [
            f"over budget: {plain(finding.title)} ({origin(finding.where)}) costs the device "
            f"{duration(finding.exposed_ns)} per step, --max-exposed is {duration(args.max_exposed)}"
            for finding in result.findings
            if finding.exposed_ns > args.max_exposed and not finding.harmless
        ]
    return over
