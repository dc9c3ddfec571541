"""What became of budgets, as data. The JSON form is `unstall.check/1`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from unstall.result import Finding, LineCount, Source, Steps, Where

SCHEMA = "unstall.check/1"
State: TypeAlias = Literal["held", "exceeded", "unknown"]


class OutcomeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One source line that contributes to the figure of a budget.

    Attributes:
        where: The line.
        text: How much the line adds to the figure: "1x a step", "222 KiB in a step".
        title: What happens there, in a sentence; "" if `text` says it all.
        fix: What to do instead; "" if that is not known.
    """

    where: Where
    text: str
    title: str = ""
    fix: str = ""

    @classmethod
    def of(cls, found: Finding | LineCount, text: str) -> OutcomeLine:
        """Returns an outcome line with the place, title and fix of a finding or of a counted line."""
        return cls(where=found.where, text=text, title=found.title, fix=found.fix)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One budget, and whether it holds.

    Attributes:
        budget: The option that sets it, without its dashes: "max-syncs-per-step".
        name: What it limits, in words: "waits per step".
        state: "unknown" if the budget cannot be checked.
        limit: The limit: a count, ns, bytes, or a share from 0 to 1.
        seen: The figure that was compared with it, in the same unit; None if it is not known.
        limit_text: The limit, as people write it.
        seen_text: The figure, as people write it; "" if it is not known.
        text: A sentence: the figure and the limit, or why the budget cannot be checked.
        lines: The lines that the figure comes from, the most important first.
    """

    budget: str
    name: str
    state: State
    limit: float
    seen: float | None = None
    limit_text: str
    seen_text: str = ""
    text: str
    lines: tuple[OutcomeLine, ...] = ()


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of all budgets of one run: schema `unstall.check/1`.

    Attributes:
        schema: Name and version of this form.
        version: The version of unstall.
        path: The program that ran, or the file that was read.
        source: The run; None after a search for races, which records no steps.
        steps: How the run was cut into steps; None if `source` is None.
        shortfall: Why the figures are about another part of the run than was asked for, or about few steps only. None
            if nothing is missing.
        outcomes: One outcome for each budget.
    """

    schema: str = SCHEMA
    version: str
    path: str
    source: Source | None = None
    steps: Steps | None = None
    shortfall: str | None = None
    outcomes: tuple[Outcome, ...]

    @property
    def exit_code(self) -> int:
        """0 if all budgets hold, 1 if one is exceeded, else 3."""
        states = {outcome.state for outcome in self.outcomes}
        return 1 if "exceeded" in states else 3 if "unknown" in states else 0
