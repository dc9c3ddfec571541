"""Draws a stacked bar from characters. The characters alone, or the colours alone, are enough to read the bar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions
from rich.text import Text

from unstall.document.document import Part

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
    "idle: unknown": (",", "dim"),
}


class DrawnBar:
    """Draws one stacked bar on a terminal with `rich`. Each part is at least one character wide.
    The constructor's `share` is the bar's share of the available width, from 0 to 1.
    """

    def __init__(self, parts: Sequence[Part], share: float = 1.0) -> None:
        self._parts, self._share = parts, share

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Text]:
        wanted = max(len(self._parts), round(self._share * options.max_width))
        bar = Text(no_wrap=True)
        for part, cells in zip(self._parts, cells_of(self._parts, min(wanted, options.max_width)), strict=True):
            glyph, style = look(part)
            bar.append(glyph * cells, style)
        return [bar]


def cells_of(parts: Sequence[Part], width: int) -> list[int]:
    """Returns the width of each part of a bar, in characters.

    The widths are in proportion to the sizes of the parts, and at least 1. The widths add up to `width`.
    """
    total = sum(part.size for part in parts)
    spare = width - len(parts)
    bounds, seen = [0], 0
    for part in parts:
        seen += part.size
        bounds.append(spare * seen // total)
    return [1 + right - left for left, right in pairwise(bounds)]


def look(part: Part) -> tuple[str, str]:
    """Returns the character and the style (as for `rich`) with which a part of a bar is drawn."""
    return _STYLES[part.key]
