"""The figure that a budget's limit is compared with, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from unstall.budgets.outcome import OutcomeLine
from unstall.result import Result


@dataclass(frozen=True, slots=True)
class Seen:
    """The figure that a limit is compared with. `about` follows the figure's text in the sentence."""

    value: float
    text: str
    about: str = ""
    lines: tuple[OutcomeLine, ...] = ()


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Why a result does not have the figure, as a clause that says what to do."""

    why: str


Look: TypeAlias = Callable[[Result, float], Seen | CannotTell]
"""Looks at a result. It gets the limit too, for lines that are over it by themselves, and for its units."""

NO_STEPS = "no steps were found in the run: call unstall.step() at the end of each"
OLDER = "an older version of unstall saved this result: explain the trace again"
MOST_LINES = 5
"""How many lines are shown of a figure that many add to, such as launches. Of waits all are: each has to be mended."""
