"""What helpers print, in lines as wide as the terminal, as a report's are."""

from __future__ import annotations

import shutil
import textwrap

_WIDEST, _LEAST = 120, 40  # columns
_INDENT = "    "  # of what goes on


class Printed:
    """Stats, which say by `text` what a helper did, and are printed as wide as the terminal."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """All of it, with lines of any length."""
        raise NotImplementedError

    def __str__(self) -> str:
        return wrapped(self.text)


def wrapped(text: str, width: int | None = None) -> str:
    """Each line of `text` in lines of at most `width` columns, by default the terminal's (`COLUMNS` is honoured), or 80
    where there is none. What goes on is indented, by more than the line that it belongs to; words stay whole."""
    columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
    columns = max(_LEAST, min(columns, _WIDEST))
    return "\n".join(line for each in text.split("\n") for line in _lines(each, columns))


def _lines(line: str, columns: int) -> list[str]:
    own = line[: len(line) - len(line.lstrip())]
    found = textwrap.wrap(
        line, columns, subsequent_indent=own + _INDENT, break_long_words=False, break_on_hyphens=False
    )
    return found or [line]
