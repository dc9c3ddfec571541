"""The outcomes of budget checks, as data. The JSON form is `unstall.check/1`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from unstall.result import Finding, LineCount, Source, Steps, Where

SCHEMA = "unstall.check/1"
State: TypeAlias = Literal["held", "exceeded", "unknown"]


class OutcomeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One source line that contributes to the figure that a budget limits.

    Attributes:
        where: Where the line is.
        text: How much the line contributes: "1x a step", "222 KiB in a step".
        title: A sentence that says what happens at the line; "" if `text` is sufficient.
        fix: What to do about the line; "" if no fix is known.
    """

    where: Where
    text: str
    title: str = ""
    fix: str = ""

    @classmethod
    def of(cls, found: Finding | LineCount, text: str) -> OutcomeLine:
        """Returns an outcome line with the place, the title and the fix of `found`, and with the text `text`."""
        return cls(where=found.where, text=text, title=found.title, fix=found.fix)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run stays within one limit.

    Attributes:
        budget: The option that sets the limit, without its dashes: "max-syncs-per-step".
        name: What is limited, in words: "waits per step".
        state: "held" if the run stays within the limit, "exceeded" if it does not, "unknown" if the limit cannot be
            checked.
        limit: The limit: a count, ns, bytes, or a share from 0 to 1.
        seen: The figure of the run, in the unit of `limit`; None if the figure is not known.
        limit_text: The limit as text with a unit.
        seen_text: The figure as text with a unit; "" if the figure is not known.
        text: A sentence with the figure and the limit, or with the reason why the limit cannot be checked.
        lines: The source lines that contribute to the figure, the largest contribution first.
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
    """The outcomes of all limits that were checked for one run, in the JSON schema
    `unstall.check/1`.

    Attributes:
        schema: Name and version of this JSON form.
        version: The version of unstall.
        path: The program that ran, or the file that was read.
        source: What is known about the recorded run as a whole, such as its device. None if the run
            was only searched for races.
        steps: How the run was divided into steps. None if the run was only searched for races.
        shortfall: Why the figures describe only a few steps, or not the part of the run that the
            user asked for. None if neither is the case.
        outcomes: One outcome for each limit.
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
        """The exit code of the command: 1 if a limit is exceeded; 3 if none is exceeded but one
        cannot be checked; 0 if the run stays within all limits.
        """
        states = {outcome.state for outcome in self.outcomes}
        return 1 if "exceeded" in states else 3 if "unknown" in states else 0
