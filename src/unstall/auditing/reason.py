"""Finds, in the output of a process, the line that says why the process failed."""

from __future__ import annotations

from itertools import dropwhile
from pathlib import Path

from unstall.figures import signal_name

_MOST_BYTES = 1 << 20  # of the end of a log
_MOST_CHARACTERS = 300
_TRACEBACK = "Traceback (most recent call last):"
_NOTHING, _NO_REPORT = "unstall: nothing ", "unstall: so there is no report"
"""The first words of the lines in which `unstall run` says why there is no report."""


def reason_of(code: int, log: Path) -> str:
    """Returns one line that says why a process failed.

    If a signal killed the process, the line names the signal. If the exit code is 0, the line is
    the sentence in which `unstall run` says why there is no report.

    In all other cases, the line is the first line of the error in the last traceback of the output.
    If the output has no traceback, the line is the last line of the output. If the output is empty,
    the line says the exit code.

    Args:
        code: The exit code; negative if a signal killed the process.
        log: The file with the output of the process.
    """
    if code < 0:
        return f"{signal_name(-code)} ended it"
    lines = [line.rstrip() for line in _tail(log).splitlines() if line.strip()]
    why = [line.removeprefix("unstall: ") for line in lines if line.startswith(_NOTHING)]
    theirs = [line for line in lines if not line.startswith((_NOTHING, _NO_REPORT))]
    found = [_of_traceback(theirs), *theirs[-1:], *why] if code else [*why, *theirs[-1:]]
    return next(filter(None, found), f"exit code {code}").strip()[:_MOST_CHARACTERS]


def _of_traceback(lines: list[str]) -> str:
    """Returns the first line after the frames of the last traceback: the type and message of the error. If the message
    begins on the next line, returns both lines as one. Returns "" if there is no traceback."""
    if _TRACEBACK not in lines:
        return ""
    after = lines[len(lines) - lines[::-1].index(_TRACEBACK) :]
    error = list(dropwhile(lambda line: line.startswith(" "), after))[:2]
    return " ".join(error) if error and error[0].endswith(":") else next(iter(error), "")


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MOST_BYTES))
        return file.read().decode(errors="replace")
