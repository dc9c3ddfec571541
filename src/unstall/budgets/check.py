"""Compares a result with a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unstall._version import __version__
from unstall.budgets.budget import Budget
from unstall.budgets.counts import launches, waits
from unstall.budgets.limits import EXPOSED, IDLE, LAUNCHES_PER_STEP, RACES, RESERVED, STEP, SYNCS_PER_STEP, Limit
from unstall.budgets.memory import reserved
from unstall.budgets.outcome import CheckResult, Outcome, OutcomeLine
from unstall.budgets.races import races as races_in
from unstall.budgets.races import seen_races
from unstall.budgets.seen import CannotTell, Look, Seen
from unstall.budgets.times import exposed, idle, step
from unstall.result import Result

_LOOKS: Mapping[Limit, Look] = {
    SYNCS_PER_STEP: waits,
    LAUNCHES_PER_STEP: launches,
    IDLE: idle,
    EXPOSED: exposed,
    STEP: step,
    RESERVED: reserved,
    RACES: races_in,
}


def check(result: Result, budget: Budget, *, path: str | None = None) -> CheckResult:
    """Compares a run with each limit of a budget.

    Args:
        result: The result of the run.
        budget: The limits.
        path: The path to show in the outcome, for example that of the program. If None, the path of
            the file that `result` describes.
    """
    why = _cannot_be_judged(result)
    return CheckResult(
        version=__version__,
        path=path or result.source.path,
        source=result.source,
        steps=result.steps,
        shortfall=result.integrity.shortfall,
        outcomes=tuple(
            _outcome(limit, value, CannotTell(why) if why else _LOOKS[limit](result, value))
            for limit, value in budget.limits()
        ),
    )


def check_races(races: Iterable[OutcomeLine], missing: str, budget: Budget, *, path: str) -> CheckResult:
    """Compares the number of races of a run with a budget. Checks nothing else about the run.

    Args:
        races: One line for each race.
        missing: Why `races` may be incomplete, or "" if it is complete.
        budget: A budget that limits only races.
        path: The program that ran.
    """
    found = seen_races(races)
    seen = CannotTell(f"races may be missing: {missing}") if missing and not found.value else found
    return CheckResult(
        version=__version__, path=path, outcomes=tuple(_outcome(limit, value, seen) for limit, value in budget.limits())
    )


def _cannot_be_judged(result: Result) -> str:
    """Returns the reason why the figures of a result cannot be trusted, or "" if they can be trusted."""
    if result.verdict.bound_by == "none":
        if result.faulted:
            return "a device failed, or its memory was full, in the run"
        return "the run has no work on a device"
    if not result.integrity.ok:
        why = f" ({result.integrity.notes[0].rstrip('.')})" if result.integrity.notes else ""
        return f"something is missing from the recording{why}: record it again"
    return ""


def _outcome(limit: Limit, value: float, seen: Seen | CannotTell) -> Outcome:
    shown = limit.shown(value)
    if isinstance(seen, CannotTell):
        return Outcome(
            budget=limit.option,
            name=limit.name,
            state="unknown",
            limit=value,
            limit_text=shown,
            text=f"{limit.name} cannot be checked: {seen.why}",
        )
    return Outcome(
        budget=limit.option,
        name=limit.name,
        state="exceeded" if seen.value > value else "held",
        limit=value,
        seen=seen.value,
        limit_text=shown,
        seen_text=seen.text,
        text=f"{limit.name}: {seen.text}{seen.about}, the budget is {shown}",
        lines=seen.lines,
    )
