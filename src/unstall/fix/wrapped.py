"""Wraps the printed output of `unstall.fix` to the terminal's width. Reports are wrapped in the same way."""

from __future__ import annotations

import shutil
import textwrap

_WIDEST, _LEAST = 120, 40  # columns
_INDENT = "    "  # of continuation lines


class Printed:
    """Base class of statistics. `print` shows their `text`, wrapped to the terminal's width."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The statistics in words, with lines of any length."""
        raise NotImplementedError

    def __str__(self) -> str:
        return wrapped(self.text)


def wrapped(text: str, width: int | None = None) -> str:
    """Wraps each line of `text` at `width` columns. A width below 40 counts as 40, and a width above 120 counts as 120.

    If `width` is None, the width is the value of the environment variable `COLUMNS`. If `COLUMNS` is not set, the width
    is the terminal's, or 80 without a terminal. Continuation lines are indented more than the first line. Words are not
    broken.
    """
    columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
    columns = max(_LEAST, min(columns, _WIDEST))
    return "\n".join(line for each in text.split("\n") for line in _lines(each, columns))


def _lines(line: str, columns: int) -> list[str]:
    own = line[: len(line) - len(line.lstrip())]
    found = textwrap.wrap(
        line, columns, subsequent_indent=own + _INDENT, break_long_words=False, break_on_hyphens=False
    )
    return found or [line]
