"""The budget of races: how many races a run may have. It allows none."""

from __future__ import annotations

from collections.abc import Iterable

from unstall.budgets.limits import races_shown
from unstall.budgets.outcome import OutcomeLine
from unstall.budgets.seen import CannotTell, Seen
from unstall.result import Result

NOT_LOOKED_FOR = (
    "nothing looked for races in this run. Run it on a virtual GPU (--gpu h200). Or run it on a real one with "
    "--no-races as the only budget, and add --no-config if pyproject.toml sets other budgets"
)


def races(result: Result, limit: float) -> Seen | CannotTell:
    """Returns the number of races in a run on a virtual GPU. Returns CannotTell for a run on a real
    GPU, because a recording of a real GPU does not show races.

    `limit` is not used.
    """
    if not result.source.simulated:
        return CannotTell(NOT_LOOKED_FOR)
    return seen_races(OutcomeLine.of(finding, finding.saw) for finding in result.findings if finding.rule == "race")


def seen_races(lines: Iterable[OutcomeLine]) -> Seen:
    """Returns the figure to compare with the limit on races: their number, with one line for each race in `lines`."""
    found = tuple(lines)
    return Seen(len(found), races_shown(len(found)), lines=found)
