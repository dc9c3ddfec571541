"""Renders a waterfall (bars, each with its difference from the previous one) as a table with bars
of characters, and as HTML for the interactive page.
"""

from __future__ import annotations

import html

from unstall.document.document import Column, Level, Row, Span, Table, Waterfall, Words, words
from unstall.document.plain import in_html

_CELLS = 12
_FULL, _SAVED, _OVER = "█", "░", "▒"


def as_table(block: Waterfall) -> Table:
    """Returns a waterfall as a table of a document, with a bar of characters in each row."""
    whole = _whole(block)
    rows = tuple(
        Row(level.text, (_glyphs(level, whole), words(level.takes), level.gain), level.below) for level in block.levels
    )
    columns = Column("", "left"), *(Column(name) for name in block.names)
    return Table(block.title, columns, rows)


def drawing(block: Waterfall) -> str:
    """Returns a waterfall as an HTML section for the interactive page.

    The section has no inline styles, because the page's security policy forbids inline styles.
    """
    takes, gain = (html.escape(name) for name in block.names)
    head = (
        f'<li class="fall-head" aria-hidden="true"><span></span><span></span><span>{takes}</span>'
        f"<span>{gain}</span></li>"
    )
    rows = "".join(_row(level, _whole(block)) for level in block.levels)
    title = in_html(block.title)
    return (
        f'<section aria-labelledby="promise-title"><h2 id="promise-title">{title}</h2><figure class="panel">'
        f"<figcaption><b>{in_html(block.caption)}</b></figcaption>"
        f'<ol class="waterfall">{head}{rows}</ol></figure></section>'
    )


def _whole(block: Waterfall) -> int:
    return max(1, *(max(level.size, level.was) for level in block.levels))


def _glyphs(level: Level, whole: int) -> Words:
    """Returns a bar of glyphs for one level. Glyphs of a second kind show the difference from the previous level."""
    low, high = (round(_CELLS * each / whole) for each in sorted((level.size, level.was)))
    low = max(low, 1)
    beyond = Span(_SAVED * (high - low), "dim") if level.size < level.was else Span(_OVER * (high - low), "warning")
    return words(Span(_FULL * low, "good"), beyond)


def _row(level: Level, whole: int) -> str:
    low, high = (1000 * each / whole for each in sorted((level.size, level.was)))
    colour = "gain" if level.size < level.was else "loss"
    change = (
        f'<rect x="{low:.1f}" width="{high - low:.1f}" height="24" fill="var(--{colour})" fill-opacity="0.35"></rect>'
    )
    below = "".join(f'<span class="fall-note">{in_html(line)}</span>' for line in level.below)
    loss = " is-loss" if level.gain.startswith("-") else ""
    bar = f'<rect width="{low:.1f}" height="24" fill="var(--busy-compute)"></rect>{change if high > low else ""}'
    return (
        '<li class="fall-floor">'
        f'<span class="fall-what"><span class="fall-title">{in_html(level.text)}</span>{below}</span>'
        '<span class="fall-track">'
        '<svg viewBox="0 0 1000 24" width="100%" height="24" preserveAspectRatio="none" aria-hidden="true">'
        f"{bar}</svg></span>"
        f'<b class="fall-takes">{in_html((level.takes,))}</b>'
        f'<span class="fall-saves{loss}">{html.escape(level.gain)}</span></li>'
    )
