"""The budgets for times: how long the device is idle, how much time one finding costs, and how long a step takes."""

from __future__ import annotations

from unstall.budgets.outcome import OutcomeLine
from unstall.budgets.seen import MOST_LINES, NO_STEPS, CannotTell, Seen
from unstall.figures import duration, share
from unstall.result import Result, Where


def idle(result: Result, limit: float) -> Seen | CannotTell:
    """Returns the share of the recorded step time during which no device works, from 0 to 1.

    `limit` is not used.
    """
    idle_ns, wall = result.accounts.all_idle_ns, result.accounts.wall_ns
    blamed = sorted((line for line in result.lines if line.idle_ns > 0), key=lambda line: -line.idle_ns)
    lines = tuple(
        OutcomeLine(
            where=line.where,
            text=f"{duration(line.idle_ns)} {result.steps.over}, mostly {line.idle_cause}",
            fix=_fix_at(result, line.where),
        )
        for line in blamed[:MOST_LINES]
    )
    return Seen(
        idle_ns / wall if wall else 0.0, share(idle_ns, wall), f" of {result.steps.unit}{_as_recorded(result)}", lines
    )


def _fix_at(result: Result, where: Where) -> str:
    """Returns the advice of the costliest finding at the line `where`, or "" if no finding at this line costs time."""
    here = [each for each in result.costly if (each.where.file, each.where.line) == (where.file, where.line)]
    return max(here, key=lambda finding: finding.exposed_ns).fix if here and where.file else ""


def exposed(result: Result, limit: float) -> Seen | CannotTell:
    """Returns how much device time per step the costliest finding costs, in ns.

    The field `lines` of the result has a line for each finding that costs more than `limit`, in ns.
    """
    found = sorted(result.costly, key=lambda finding: -finding.exposed_ns)
    lines = tuple(
        OutcomeLine.of(finding, f"{duration(finding.exposed_ns)} {result.steps.over}")
        for finding in found
        if finding.exposed_ns > limit
    )
    most = found[0].exposed_ns if found else 0
    return Seen(most, duration(most), f" {result.steps.over}{_as_recorded(result)}", lines)


def step(result: Result, limit: float) -> Seen | CannotTell:
    """Returns the mean step time in ns: the one measured without a recorder if there is one, and
    the recorded one if there is none.

    `limit` is not used.
    """
    if result.steps.found_by == "whole":
        return CannotTell(NO_STEPS)
    plain = result.replay.plain_step_ns if result.replay else None
    taken = plain or result.steps.mean_ns
    how = ", measured without recording" if plain else "" if result.source.simulated else ", as recorded"
    worth = sorted((each for each in result.costly if (each.gain_ns or 0) > 0), key=lambda each: -(each.gain_ns or 0))
    lines = tuple(
        OutcomeLine.of(finding, f"mended, it saves {duration(finding.gain_ns or 0)} a step")
        for finding in worth[:MOST_LINES]
    )
    return Seen(taken, duration(taken), f" (mean{how})", lines)


def _as_recorded(result: Result) -> str:
    """Returns " as recorded" if the times of the result contain the overhead of a recorder. Returns "" for a virtual
    GPU, which has no such overhead.
    """
    return "" if result.source.simulated else " as recorded"
