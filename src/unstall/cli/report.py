"""Show a saved result again, in any format.

RESULT is a file that `unstall explain TRACE -o result.json` wrote. It holds no timeline, so an HTML report made from it
shows none. To see one, explain the trace again.
"""

from __future__ import annotations

import argparse

from unstall.budgets.limits import EXPOSED, IDLE
from unstall.cli._budget_options import add_budget_options, check_budgets
from unstall.cli._inputs import readable
from unstall.cli._output import add_output_options, check_outputs, deliver


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT", help="the JSON file to show; - for stdin")
    add_output_options(parser, it="the report", largest="costliest findings and lines", but="only the reports that")
    add_budget_options(parser, (IDLE, EXPOSED))


def run(args: argparse.Namespace) -> int:
    check_outputs(args, args.result)
    from unstall.answers.report import Report, read_result

    with readable(args.result) as file:
        result = read_result(file)
    deliver(Report(result, None), args)
    return check_budgets(result, args)
