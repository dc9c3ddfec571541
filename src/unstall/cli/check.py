"""Check a run against budgets: waits and launches per step, idle time, memory, step time, races.

    unstall check --gpu h200 --max-syncs-per-step 0 train.py --epochs 1
    unstall check --max-idle 10% --max-step-ms 30 train.py
    unstall check train.trace.json.gz --max-idle 10%
    unstall check result.json --max-launches-per-step 800

A program, a trace, or a saved result can be checked. A program is run and recorded as by `unstall run`. With --gpu it
runs on a virtual GPU, so that no real one is needed. Options for unstall stand before a program, and the program's own
after it.

Budgets are options, or keys of [tool.unstall.budget] in pyproject.toml: max-syncs-per-step = 0, max-idle = "10%". The
command line overrides them.

Exit codes: 0 if all budgets hold, 1 if one is exceeded, 3 if one cannot be checked or the report cannot be written. If
the program fails, its own exit code is returned.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.budgets.limits import RACES
from unstall.cli._budget_options import add_budget_options, budget_of, budgets_in, is_of_budget, tell
from unstall.cli._config import budgets, given_in
from unstall.cli._inputs import looks_recorded, name_of, read_report
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.cli._recording import say
from unstall.cli._run_options import USAGE, USAGE_OF_MODULE, add_program, add_recording_options
from unstall.cli._virtual_options import add_virtual_options
from unstall.document.formats import FORMATS_OF_CASES
from unstall.errors import TraceError, UnstallError, UsageError
from unstall.guest.ranks import rank_of

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.budgets.budget import Budget
    from unstall.budgets.outcome import CheckResult
    from unstall.timeline.columns import Timeline

_OF_FILES = {"program", "no_config", "step", "user", "output", "format", "top", "scrub_paths", "quiet"}
_NOT_CONFIGURED = (
    *("against", "full", "blame", "pin-down", "core-dump", "core-dump-to", "hang-after", "end-hung", "races"),
    *("output", "format", "json", "top", "scrub-paths", "quiet"),
)
"""Options of `unstall run` that `unstall check` does not take from pyproject.toml: it does not have
them, or they are for the report of `unstall run`.
"""

_NO_BUDGET = (
    "no budget is set: give one, such as --max-syncs-per-step 0, or put it into pyproject.toml, as a key of "
    "[tool.unstall.budget]"
)
_NOT_CHECKED = 3


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{USAGE}\n       {USAGE_OF_MODULE}\n       %(prog)s [options] TRACE|RESULT"
    add_program(parser, "SOURCE", "the program and its arguments, or a trace or a saved result; - for stdin")
    add_budget_options(parser)
    add_recording_options(parser)
    add_virtual_options(parser)
    add_output_options(
        parser,
        it="the report",
        largest="worst lines of each budget that is exceeded",
        but="only the reports that",
        formats=FORMATS_OF_CASES,
    )
    parser.set_defaults(
        not_configured=_NOT_CONFIGURED,
        against=None,
        blame=False,
        races=False,
        pin_down=False,
        core_dump=False,
        core_dump_to=None,
        hang_after=None,
        end_hung=False,
    )


def run(args: argparse.Namespace) -> int:
    source = args.program[1:] if args.program[:1] == ["--"] else args.program
    recorded = bool(source) and not args.module and looks_recorded(source[0])
    if recorded:
        args = _with_options_behind(args, *source)
    elif source is args.program and (behind := budgets_in(args.parser, source[1:])):
        raise UsageError(
            f"{behind[0]} comes after the program, so the program would get it: put it before SOURCE. If the "
            "program has such an option of its own, put -- before SOURCE"
        )
    budget = budget_of(args) if args.no_config else budget_of(args, *budgets())
    if not budget.limits():
        raise UsageError(_NO_BUDGET)
    return _check_file(args, budget) if recorded else _check_program(args, budget, source[0] if source else "")


def _with_options_behind(args: argparse.Namespace, file: str, *behind: str) -> argparse.Namespace:
    """Returns the parsed arguments for the check of a recorded run.

    `file` is the file of the run. `behind` contains the words after the file on the command line. These words must be
    options of unstall, because a recorded run takes no arguments. Raises UsageError for any other word.
    """
    words = [*args.words[1 : len(args.words) - len(args.program)], *behind]
    parsed: argparse.Namespace = args.parser.parse_args([*words, "--", file])
    parsed.words = [args.words[0], *words]
    parsed.program = [word for word in parsed.program if word != "--"]
    if parsed.program != [file]:
        raise UsageError(f"{file} is a recorded run, which takes no arguments: {' '.join(behind)}")
    for dest in sorted(given_in(parsed)):
        if dest not in _OF_FILES and not is_of_budget(dest):
            raise UsageError(f"--{dest.rstrip('_').replace('_', '-')} is about a run, and {file} is one that is over")
    return parsed


def _check_file(args: argparse.Namespace, budget: Budget) -> int:
    """Checks a trace or a saved result against the budgets. Returns the exit code."""
    from unstall.budgets.check import check

    (path,) = args.program
    check_outputs(args, path)
    try:
        report = read_report(path, quiet=args.quiet, step=args.step, user=args.user)
        checked = check(report.result, budget, path=name_of(path))
    except (UnstallError, OSError):
        raise
    except Exception as error:  # a figure that makes no sense: no budget may seem to be exceeded, nor to hold
        raise TraceError(f"{path}: cannot be checked: {type(error).__name__}: {error}") from error
    _deliver(checked, args)
    return checked.exit_code


def _check_program(args: argparse.Namespace, budget: Budget, name: str) -> int:
    """Runs the program and checks its run against the budgets. Returns the exit code. In reports, the program is
    called `name`.
    """
    from unstall.cli.run import explained, run_program

    # A virtual GPU always looks for races. On a real one, a run that does records no steps.
    args.blame = args.races = not args.gpu and [limit for limit, _ in budget.limits()] == [RACES]
    codes: list[int] = []
    """The exit codes that were determined so far. The last code counts."""

    def report_on(checked: CheckResult) -> None:
        codes.append(checked.exit_code or _NOT_CHECKED)  # if the report cannot be written
        _deliver_beside_program(checked, args)
        codes.append(checked.exit_code)

    def explain(timeline: Timeline, args: argparse.Namespace, trace: Path) -> Report:
        from unstall.budgets.check import check

        report = explained(timeline, args)
        report_on(check(report.result, budget, path=name))
        if codes[-1] and not args.quiet:
            say(f"all of it: unstall explain {shlex.quote(str(trace))}")
        return report

    def blame(args: argparse.Namespace, program: Sequence[str]) -> int:
        from unstall.cli._check_races import races_of
        from unstall.launching.launch import leave_as

        check_outputs(args, *([] if args.module else program[:1]))
        ended, checked = races_of(args, program, budget, name)
        report_on(checked)
        return leave_as(ended)

    code = run_program(args, explain, blame)
    if code or rank_of(os.environ):
        return code
    if not codes:
        raise TraceError("no budget can be checked: nothing is known of the run")
    return codes[-1]


def _deliver_beside_program(checked: CheckResult, args: argparse.Namespace) -> None:
    """Prints the report to stderr, or to stdout if a format was requested. With a format, the program's own stdout goes
    to stderr.
    """
    with nullcontext() if args.format else redirect_stdout(sys.stderr):
        _deliver(checked, args)


def _deliver(checked: CheckResult, args: argparse.Namespace) -> None:
    """Prints the report and writes it to files. In a GitHub workflow, also prints annotations."""
    from unstall.answers.check import Checked

    shown = Checked(checked)
    deliver(shown, args)
    if args.quiet and not args.format:
        tell(checked)
    if os.environ.get("GITHUB_ACTIONS") == "true" and args.format != "github":
        from unstall.document.formats import render

        sys.stderr.write(render(shown.document(scrub_paths=args.scrub_paths), "github"))
