"""`unstall run --against`: the run that was just recorded, compared with an earlier one."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.answers.report import Report


def check_against(args: argparse.Namespace) -> None:
    """Raises UsageError before the program runs if there is no file to compare it with."""
    if args.against is None:
        return
    try:
        with Path(args.against).open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"--against {args.against}: cannot be read: {error.strerror or error}") from error


def compared_with(path: str, report: Report, args: argparse.Namespace) -> str:
    """Compares a run with an earlier one: a trace, a saved timeline or a saved result. Shows the waterfall on stderr.

    Returns the line to end with: "promised 0.653 ms, got 0.697 ms". Raises TraceError if the earlier file is none of
    these.
    """
    from unstall.answers.difference import Difference
    from unstall.cli._inputs import read_report
    from unstall.document import terminal

    difference = Difference.between(read_report(path, quiet=args.quiet), report)
    document = difference.promise_document(scrub_paths=args.scrub_paths)
    with redirect_stdout(sys.stderr):
        if document.blocks or document.caveats:
            terminal.show(document)
        else:
            print()
    return difference.conclusion().splitlines()[-1]
