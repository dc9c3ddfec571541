"""Show a saved result, audit, or report of a job, in any format.

RESULT is a file that `unstall explain`, `unstall audit` or `unstall fleet` wrote with `-o result.json`. It holds no
timeline, so an HTML report made from it shows none. To see one, explain the trace again.

An audit cannot be held to a budget, such as --max-idle. For that, run `unstall check` on one of its entries.
"""

from __future__ import annotations

import argparse

from unstall.budgets.limits import EXPOSED, IDLE
from unstall.cli._budget_options import add_budget_options, budget_of, deliver_checked
from unstall.cli._inputs import readable
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT", help="the JSON file to show; - for stdin")
    add_output_options(parser, it="the report", largest="costliest findings and lines", but="only the reports that")
    add_budget_options(parser, (IDLE, EXPOSED))


def run(args: argparse.Namespace) -> int:
    check_outputs(args, args.result)
    from unstall.answers.fleet import Fleet
    from unstall.answers.report import Report
    from unstall.answers.saved import read_saved

    with readable(args.result) as file:
        saved = read_saved(file)
    if isinstance(saved, Report):
        return deliver_checked(saved, args)
    if budget_of(args).limits():
        if isinstance(saved, Fleet):
            raise UsageError(f"{args.result}: this is the report of a job, which has no budgets: check a rank's trace")
        raise UsageError(f"{args.result}: this is an audit, which has no budgets: check an entry with `unstall check`")
    deliver(saved, args)
    return 0
