"""`unstall run --against`: compares the run that was just recorded with an earlier run."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from unstall.cli._ending import in_lines
from unstall.errors import TraceError, UsageError

if TYPE_CHECKING:
    from unstall.answers.report import Report


def earlier_run(args: argparse.Namespace, rank: int | None) -> Report | None:
    """Returns the report of the earlier run that the option `--against` names; None if this option
    is not given.

    The option names a trace, a saved timeline or a saved result. In a distributed run, only rank 0
    reads this file, and the result for other ranks is None.

    Args:
        args: The parsed arguments.
        rank: The rank of this process; None if the run is not distributed.

    Raises:
        UsageError: The file is not a trace, a saved timeline or a saved result.
    """
    if args.against is None or rank:
        return None
    from unstall.cli._inputs import read_report

    try:
        return read_report(args.against, quiet=True, step=args.step, user=args.user)
    except TraceError as error:
        raise UsageError(f"--against {error}") from error


def compared_with(earlier: Report, report: Report, args: argparse.Namespace) -> str:
    """Compares a run with an earlier run. Prints to stderr how the step time changed, and the
    command that shows more.

    Args:
        earlier: The report of the earlier run.
        report: The report of the run.
        args: The parsed arguments.

    Returns:
        The last line to print, such as "promised 0.653 ms, got 0.697 ms".
    """
    from unstall.answers.difference import Difference
    from unstall.changes.promise import remainder
    from unstall.document import terminal

    difference = Difference.between(earlier, report)
    runs = [each.result.source.path for each in (earlier, report)]
    commands = in_lines(shlex.join(["unstall", "diff", *runs]))
    with redirect_stdout(sys.stderr):
        print()
        terminal.show(difference.promise_document(commands, scrub_paths=args.scrub_paths))
        if not remainder(difference.result):
            print()
    return difference.conclusion().splitlines()[-1]
