"""The figure that is compared with a budget's limit, or the reason why the figure is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from unstall.budgets.outcome import OutcomeLine
from unstall.result import Result


@dataclass(frozen=True, slots=True)
class Seen:
    """The figure of one run that is compared with a limit of a budget.

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
    """Says that a result does not contain the figure that a budget limits. `why` is a clause with
    the reason and what to do about it.
    """

    why: str


Look: TypeAlias = Callable[[Result, float], Seen | CannotTell]
"""A function (result, limit) that returns the figure to compare with a limit of a budget.

Some functions use the limit itself: to list the lines that alone exceed it, or to write the figure
in its units.
"""

NO_STEPS = "no steps were found in the run: call unstall.step() at the end of each"
OLDER = "an older version of unstall saved this result: explain the trace again"
MOST_LINES = 5
"""How many source lines are shown for a figure to which many lines contribute, such as launches.

For waits, all lines are shown, because each wait must be fixed.
"""
