"""Splits the text of a verdict: what limits the run, and the sentences that say more."""

from __future__ import annotations

import re

from unstall.result import CAVEAT

_BETWEEN = re.compile(r"(?<=[.!?]) +(?=[A-Z])")


def in_short(verdict: str, shortfall: str | None = None) -> str:
    """Returns the beginning of `verdict`, up to the end of the sentence that says what limits the
    run.

    `verdict` may begin with the text `shortfall` and with a caveat. The result begins with them,
    too.
    """
    begins = len(shortfall.rstrip(".")) + 1 if shortfall else 0  # with its full stop
    sentences = verdict[begins:].split(". ")
    wanted = 1 + verdict[begins:].lstrip().startswith(CAVEAT)
    text = verdict[:begins] + ". ".join(sentences[:wanted])
    return text if len(sentences) <= wanted else f"{text}."


def more_of(verdict: str, shortfall: str | None = None) -> list[str]:
    """Returns the sentences of `verdict` that follow those of `in_short`, whose arguments are the same."""
    rest = verdict[len(in_short(verdict, shortfall)) :].strip()
    return _BETWEEN.split(rest) if rest else []
