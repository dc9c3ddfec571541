"""The figure that a budget's limit is compared with, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from unstall.budgets.outcome import OutcomeLine
from unstall.result import Result


@dataclass(frozen=True, slots=True)
class Seen:
    """The figure of a run that is compared with a limit.

    Attributes:
        value: The figure, in the unit of the limit.
        text: The figure as text with a unit.
        about: Words that follow `text` in a sentence, such as " at the peak".
        lines: The source lines that contribute to the figure.
    """

    value: float
    text: str
    about: str = ""
    lines: tuple[OutcomeLine, ...] = ()


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Says that a result does not have the figure for a limit. `why` is a clause that says why, and what to do about
    it.
    """

    why: str


Look: TypeAlias = Callable[[Result, float], Seen | CannotTell]
"""Looks at a result. It gets the limit too, for lines that are over it by themselves, and for its units."""

NO_STEPS = "no steps were found in the run: call unstall.step() at the end of each"
OLDER = "an older version of unstall saved this result: explain the trace again"
MOST_LINES = 5
"""How many lines are shown of a figure that many add to, such as launches. Of waits all are: each has to be mended."""
