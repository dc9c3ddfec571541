"""The accounts as a bar: glyphs and colours say the same, so that it reads without either."""

from __future__ import annotations

from itertools import pairwise

from rich.console import Console, ConsoleOptions
from rich.text import Text

from unstall.report.wording import Part

_STYLES: dict[str, tuple[str, str]] = {
    "compute": ("█", "green"),
    "both": ("▓", "cyan"),
    "copy": ("▒", "blue"),
    "comm": ("▚", "magenta"),
    "idle: sync": ("░", "red"),
    "idle: launch": (":", "yellow"),
    "idle: input": ("~", "magenta"),
    "idle: copy": ("-", "blue"),
    "idle: allocator": ("+", "red"),
    "idle: comm": ("=", "magenta"),
    "idle: startup": ("^", "cyan"),
    "idle: python": ("%", "yellow"),
    "idle: event": ("!", "red"),
    "idle: latency": (".", "dim"),
}


class Bar:
    """The accounts as one bar over the whole width, each part at least a cell."""

    def __init__(self, accounts: list[Part]) -> None:
        self._accounts = accounts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Text]:
        bar = Text(no_wrap=True)
        for part, cells in zip(self._accounts, _cells(self._accounts, options.max_width), strict=True):
            glyph, style = look(part)
            bar.append(glyph * cells, style)
        return [bar]


def _cells(accounts: list[Part], width: int) -> list[int]:
    """Cells of each part: in proportion, none empty, and exactly `width` in all."""
    total = sum(part.ns for part in accounts)
    spare = width - len(accounts)
    bounds, seen = [0], 0
    for part in accounts:
        seen += part.ns
        bounds.append(spare * seen // total)
    return [1 + right - left for left, right in pairwise(bounds)]


def look(part: Part) -> tuple[str, str]:
    """Glyph and style of a part."""
    return _STYLES[f"idle: {part.key}" if part.kind == "idle" else part.key]
