"""`unstall check --no-races` on a real GPU: runs a program, and looks for races instead of recording steps."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from unstall.budgets.check import check_races
from unstall.budgets.outcome import CheckResult, OutcomeLine
from unstall.cli._blame import supervised
from unstall.launching.launch import Exit
from unstall.result import Caller, Where

if TYPE_CHECKING:
    from unstall.blaming.result import Race
    from unstall.budgets.budget import Budget


def races_of(args: argparse.Namespace, program: Sequence[str], budget: Budget, name: str) -> tuple[Exit, CheckResult]:
    """Runs a program on a real GPU and looks for races.

    Args:
        args: The parsed arguments.
        program: The program and its arguments.
        budget: A budget that limits only races.
        name: The program's name in reports.

    Returns:
        `(how the program ended, whether the run stays within the budget)`.
    """
    ended = supervised(args, program)
    found = ended.result.races if ended.result else None
    missing = ended.result.races_missing if ended.result else ended.missing
    return ended.exit, check_races(_lines(found or ()), missing, budget, path=name)


def _lines(races: Sequence[Race]) -> Iterator[OutcomeLine]:
    """Yields one line of the outcome for each race: the source line of the race's later operation."""
    from unstall.blaming.races.words import saw_of

    for race in races:
        line, callers = race.later.where, race.later.called_from
        caller = Caller(file=callers[0].file, line=callers[0].line, function=callers[0].function) if callers else None
        where = Where(op=race.later.operator or None)
        if line:
            where = Where(
                file=line.file, line=line.line, line_is="exact", function=line.function, op=where.op, called_from=caller
            )
        yield OutcomeLine(where=where, text=saw_of(race), title=race.title, fix=race.fix)
