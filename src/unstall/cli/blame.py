"""Say where a program is now that runs with --blame.

    unstall run --blame train.py      in one terminal
    unstall blame PID                 in another

PID is the process of the program, of one of its ranks, or of `unstall run`. For each process of the program, the report
says which line's work each stream is at, what it waits for, and where the host is. The program goes on. Nothing is
installed into it: without --blame it cannot be asked.
"""

from __future__ import annotations

import argparse

from unstall.cli._arguments import parse_count
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", metavar="PID", type=parse_count, help="the number of the process")
    add_output_options(parser, it="the report", but="only the reports that")


def run(args: argparse.Namespace) -> int:
    check_outputs(args)
    from unstall.blaming.hangs.document import HangReport
    from unstall.blaming.hangs.processes import folder_of, processes_in, state_of
    from unstall.blaming.hangs.watch import look_now
    from unstall.blaming.result import BlameResult

    folder = folder_of(args.pid)
    if folder is None:
        if not state_of(args.pid):
            raise UsageError(f"there is no process {args.pid}")
        raise UsageError(
            f"process {args.pid} does not run with `unstall run --blame`, or is another user's: it cannot be asked "
            "where it is"
        )
    program = next((each.who.program for each in processes_in(folder) if each.main), "")
    deliver(HangReport(BlameResult(program=program, hang=look_now(folder))), args)
    return 0
