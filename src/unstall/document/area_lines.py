"""Draws an area plot as lines of characters. The plot can be read without colours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from rich.cells import cell_len

from unstall.document.document import Area, Role, Span, Words, words
from unstall.document.plain import plain

HEIGHT = 6  # rows
_FEWEST_COLUMNS = 8
_BLOCKS = "▁▂▃▄▅▆▇█"
_BEHIND = "░"
_MARK = "▲"
_LOOKS: tuple[Role, Role] = ("good", "dim")


def as_lines(area: Area, width: int) -> list[Words]:
    """Returns an area plot as lines of at most `width` characters, without its title. Returns [] if
    the plot does not fit.
    """
    most = max((*area.front, *area.behind, 1))
    labels = (area.most, "0")
    gutter = 2 + max(map(len, labels))
    columns = min(width - gutter, len(area.front))
    if columns < _FEWEST_COLUMNS:
        return []
    scale = HEIGHT / most
    front, behind = ([scale * each for each in _highest(values, columns)] for values in (area.front, area.behind))
    lines = []
    for row in reversed(range(HEIGHT)):
        label = labels[0] if row == HEIGHT - 1 else labels[1] if row == 0 else ""
        lines.append(words(Span(f"{label:>{gutter - 2}} {'┤' if label else '│'}", "dim"), *_row(front, behind, row)))
    start, end = area.ends
    lines.append(words(Span(f"{'└':>{gutter}}{'─' * columns}", "dim")))
    at, text = area.mark
    column = min(int(at * columns), columns - 1)
    lines.append(words(" " * gutter, *_marked(column, text, columns)))
    between = columns - cell_len(start) - cell_len(end)
    lines += [words(Span(f"{' ' * gutter}{start}{' ' * between}{end}", "dim"))] if between > 0 else []
    lines += [_legend(area)]
    return lines


def _highest(values: tuple[int, ...], columns: int) -> list[int]:
    """Returns the highest value in each of `columns` stretches of equal length."""
    edges = [len(values) * at // columns for at in range(columns + 1)]
    return [max(values[low:high]) for low, high in pairwise(edges)] if values else []


def _row(front: list[float], behind: list[float], row: int) -> Iterator[Span]:
    behind = behind or [0.0] * len(front)
    cells = [_cell(*each, row) for each in zip(front, behind, strict=True)]
    for look, run in groupby(cells, lambda cell: cell[1]):
        yield Span("".join(glyph for glyph, _ in run), look)


def _cell(front: float, behind: float, row: int) -> tuple[str, Role]:
    eighths = min(round((front - row) * len(_BLOCKS)), len(_BLOCKS))
    if eighths > 0:
        return _BLOCKS[eighths - 1], _LOOKS[0]
    return (_BEHIND, _LOOKS[1]) if behind - row > 0 else (" ", "")


def _marked(column: int, text: Words, columns: int) -> Words:
    caret, length = Span(_MARK, "bad"), sum(cell_len(plain(span.text)) for span in text)
    if column + 2 + length <= columns or length + 1 > column:
        return words(" " * column, caret, " ", text)
    return words(" " * (column - length - 1), text, " ", caret)


def _legend(area: Area) -> Words:
    front, behind = area.names
    shown = [words(Span(_BLOCKS[-1], _LOOKS[0]), f" {front}")]
    shown += [words("   ", Span(_BEHIND, _LOOKS[1]), f" {behind}")] if area.behind else []
    return words(*shown)
