"""Reads budgets from the command line and from `[tool.unstall.budget]` in pyproject.toml. A budget
is a limit on a figure of a run. Also prints which limits are exceeded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unstall.budgets.limits import LIMITS, Limit
from unstall.cli._arguments import named
from unstall.cli._output import deliver
from unstall.did_you_mean import meant
from unstall.document.plain import no_command, plain, short
from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.budgets.budget import Budget
    from unstall.budgets.outcome import CheckResult

_PREFIX = "budget_"
_NONE = 0  # of a thing that there may be none of


def add_budget_options(parser: argparse.ArgumentParser, limits: Sequence[Limit] = LIMITS) -> None:
    """Adds an option for each kind of limit in `limits` to a parser."""
    group = parser.add_argument_group(
        "budgets", "exit with 1 if the run exceeds one of these, with 3 if one cannot be checked"
    )
    for limit in limits:
        option, dest = f"--{limit.option}", _PREFIX + limit.field
        if limit.parse is None:
            group.add_argument(option, dest=dest, action="store_const", const=_NONE, help=limit.help)
        else:
            parse = named(option, limit.parse)
            group.add_argument(option, dest=dest, metavar=limit.metavar, type=parse, help=limit.help)


def budgets_in(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Returns the options in a command line that set a limit on a figure of a run. Words after "--"
    do not count.

    Args:
        parser: The parser that has these options.
        words: The words of the command line.
    """
    own = words[: words.index("--")] if "--" in words else words
    names = {name for action in parser._actions if is_of_budget(action.dest) for name in action.option_strings}
    return [name for word in own if (name := word.partition("=")[0]) in names]


def is_of_budget(dest: str) -> bool:
    """Returns whether an option sets a limit on a figure of a run. `dest` is the name of the
    option's attribute in the parsed arguments.
    """
    return dest.startswith(_PREFIX)


def budget_of(args: argparse.Namespace, table: Mapping[str, Any] | None = None, about: str = "") -> Budget:
    """Returns the limits on a run that the command line sets. Limits that the command line does not
    set come from `table`.

    Args:
        args: The parsed arguments.
        table: The table of budgets in pyproject.toml; None if there is none.
        about: The name of the table in error messages.

    Raises:
        UsageError: The table has a wrong key or value.
    """
    from unstall.budgets.budget import Budget

    given = {dest.removeprefix(_PREFIX): value for dest, value in vars(args).items() if is_of_budget(dest)}
    given = {field: value for field, value in given.items() if value is not None}
    return Budget(**{**dict(_of_table(table or {}, about)), **given})


def _of_table(table: Mapping[str, Any], about: str) -> Iterator[tuple[str, float]]:
    known = {limit.option: limit for limit in LIMITS}
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{about} {short(key)}: there is no such budget{meant(key, known)}")
        limit = known[key]
        try:
            if limit.parse is None:
                if not isinstance(value, bool):
                    raise UsageError("give true or false")
                if value:
                    yield limit.field, _NONE
            elif isinstance(value, bool) or not isinstance(value, int | float | str):
                raise UsageError("give a number, or text in quotes")
            else:
                yield limit.field, limit.parse(_text(value))
        except UsageError as error:
            raise UsageError(f"{about} {key}: {error}") from error


def _text(value: float | str) -> str:
    try:
        return str(value)
    except ValueError as error:  # more digits than Python prints
        raise UsageError("is too large") from error


def deliver_checked(report: Report, args: argparse.Namespace) -> int:
    """Prints a report, and writes it to the files that -o names. Prints to stderr which limits of
    the command line the run exceeds. Returns the exit code.

    The limits are checked even if a file cannot be written.
    """
    budget = budget_of(args)
    try:
        deliver(report, args)
    finally:
        exit_code = _check(report, budget) if budget.limits() else 0
    return exit_code


def _check(report: Report, budget: Budget) -> int:
    from unstall.budgets.check import check

    checked = check(report.result, budget)
    tell(checked)
    return checked.exit_code


def tell(checked: CheckResult) -> None:
    """Prints a sentence to stderr for each limit that a run exceeds, or that cannot be checked. The
    source lines that exceed the limit follow.
    """
    from unstall.report.wording import origin

    for outcome in checked.outcomes:
        if outcome.state == "held":
            continue
        over = "over budget: " if outcome.state == "exceeded" else ""
        lines = [f"  - {origin(line.where)}: {line.text}" for line in outcome.lines] if over else []
        for text in (f"unstall: {over}{outcome.text}", *lines):
            print(no_command(plain(text)), file=sys.stderr)
