"""Compare two recorded runs: step time, waits, copies, kernels, lines.

A is the run before and B the run after: traces or saved timelines, as for `unstall explain`. Source lines
that moved are recognised. The last line of the report says what the plan of A promised and what B got. A and B can also
be results that were saved as .json: then only step times and the plan are compared.

If A and B are folders of traces, globs in quotes, or saved results of `unstall fleet`, two jobs of many ranks are
compared.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from unstall.cli._arguments import add_place_options
from unstall.cli._inputs import read_report
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.errors import TraceError, UsageError

if TYPE_CHECKING:
    from unstall.changes.result import DiffResult


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the run before")
    parser.add_argument("b", metavar="B", help="the run after")
    add_place_options(parser, ", in both runs")
    add_output_options(parser, largest="largest changes of each kind")
    group = parser.add_argument_group("budget")
    group.add_argument(
        "--fail-on-slower",
        metavar="SHARE",
        type=_share,
        help="exit with 1 if B's mean step is slower than A's by more than this share, such as 5%%",
    )


def run(args: argparse.Namespace) -> int:
    check_outputs(args, args.a, args.b)
    if _are_jobs(args.a, args.b):
        return _compare_jobs(args)
    from unstall.answers.difference import Difference

    difference = Difference.between(
        *(read_report(path, step=args.step, user=args.user, quiet=args.quiet) for path in (args.a, args.b))
    )
    deliver(difference, args)
    over = _slower(difference.result, args.fail_on_slower)
    if over:
        print(f"unstall: {over}", file=sys.stderr)
    return 1 if over else 0


def _are_jobs(a: str, b: str) -> bool:
    """Returns whether two inputs are jobs of many ranks. Raises UsageError if only one of them is."""
    from unstall.answers.fleet import is_fleet

    jobs = [path for path in (a, b) if is_fleet(path)]
    if len(jobs) == 1:
        raise UsageError(f"{jobs[0]} is a job of many ranks, and the other input is not: give two jobs, or two runs")
    return bool(jobs)


def _compare_jobs(args: argparse.Namespace) -> int:
    from unstall.answers.fleet import FleetsCompared, read_fleet

    compared = FleetsCompared.between(*(read_fleet(path, step=args.step, user=args.user) for path in (args.a, args.b)))
    deliver(compared, args)
    result, most = compared.result, args.fail_on_slower
    if most is None or result.beyond_noise is False or result.b.step_ns <= (1 + most) * result.a.step_ns:
        return 0
    over = result.b.step_ns / max(result.a.step_ns, 1) - 1
    print(f"unstall: B's mean step is {100 * over:.1f} % slower than A's", file=sys.stderr)
    return 1


def _slower(result: DiffResult, most: float | None) -> str | None:
    """Returns a sentence if run B is slower than run A by more than the share `most`, otherwise None.

    Raises TraceError if the step times of the runs cannot be compared.
    """
    from unstall.figures import duration

    if most is None:
        return None
    step = result.step_ns
    if step is None:
        raise TraceError(
            f"{result.b.source.path}: the budget cannot be checked: the step times of these runs cannot be compared"
        )
    if step.change <= most * step.a:
        return None
    chance = "" if result.summary.faster else ", though the steps differ so much that this may be chance"
    return (
        f"over budget: a step takes {duration(step.b)} in B, {duration(step.a)} in A: slower by "
        f"{100 * step.change / step.a:.1f} %, --fail-on-slower is {100 * most:g} %{chance}"
    )


def _share(text: str) -> float:
    """Parses a share, such as "5%" or "0.05", as a fraction. Raises UsageError for other text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not match or (share >= 1 and not match[2]):
        raise UsageError(f"--fail-on-slower {text}: write a percentage or a fraction, such as 5% or 0.05")
    return share
