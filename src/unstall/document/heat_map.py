"""Draws heat maps and lanes: as lines of characters, and as SVG. The page around the SVG sets the
colours.

Whatever a colour shows is also shown by a character, a number or a text.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

from unstall.document.document import HeatMap, Lanes, LaneSets, Role, Span, Stretch, Words, words
from unstall.document.plain import in_html, short
from unstall.figures import duration

_SHADES = "·░▒▓█"
_MOST_ROWS = 64  # in a terminal
_MOST_LANES = 16
_LEAST_CELLS, _LEAST_BAR = 8, 20  # columns
_WIDTH, _LEFT, _ROW = 912, 120, 22  # px
_WIDEST_CELL = 64
_GLYPHS: dict[str, tuple[str, Role]] = {"work": ("█", "good"), "wait": ("░", "bad"), "transfer": ("▒", "same")}


def shade(value: float) -> str:
    """Returns the character that shows a value from 0 to 1. A larger value has a darker character."""
    return _SHADES[min(int(value * len(_SHADES)), len(_SHADES) - 1)] if value > 0 else _SHADES[0]


def map_lines(block: HeatMap, width: int) -> list[Words]:
    """Returns a heat map as lines of at most `width` characters, without its title."""
    name = max((len(row) for row in block.rows), default=0)
    cell = 1 + max((len(mark) for marks in block.marks for mark in marks), default=0)
    fits = max((width - name - 2) // (cell + 1), 1)
    shown = min(len(block.columns), max(fits, _LEAST_CELLS))
    lines = []
    for row in range(min(len(block.rows), _MOST_ROWS)):
        cells: list[Span | str] = [Span(f"{block.rows[row]:>{name}}  ", "dim")]
        for column in range(shown):
            value, mark = block.values[row][column], block.marks[row][column]
            cells.append(Span(f"{shade(value)}{mark:<{cell - 1}} ", "bad" if value >= 0.5 else ""))
        lines.append(words(*cells))
    left = [
        text
        for count, text in ((len(block.rows) - _MOST_ROWS, "rows"), (len(block.columns) - shown, "columns"))
        if count > 0
        for text in (f"{count:,} more {text}",)
    ]
    if left:
        lines.append(words(Span(" " * (name + 2) + ", ".join(left), "dim")))
    return [*lines, words(Span(block.legend, "dim"))]


def map_drawing(block: HeatMap) -> str:
    """Returns a heat map as SVG. When the pointer is over a cell, a sentence about the cell is shown."""
    if not block.rows or not block.columns:
        return ""
    cell = min((_WIDTH - _LEFT) / len(block.columns), _WIDEST_CELL)
    height = _ROW * (len(block.rows) + 1) + 4
    inside = list(_cells(block, cell))
    each = max(1, round(30 / cell))
    for column in range(0, len(block.columns), each):
        x = _LEFT + cell * (column + 0.5)
        label = in_html(block.columns[column])
        inside.append(f'<text class="dim" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{label}</text>')
    about = html.escape(f"{len(block.rows):,} rows and {len(block.columns):,} columns. {block.legend}")
    width = round(_LEFT + cell * len(block.columns))
    return (
        f'<svg viewBox="0 0 {width} {height}" style="max-width: {width}px" role="img" aria-label="{about}">\n'
        + "\n".join(inside)
        + f'\n</svg>\n<p class="dim">{in_html(block.legend)}</p>'
    )


def _cells(block: HeatMap, cell: float) -> Iterator[str]:
    for number, name in enumerate(block.rows):
        y = _ROW * number
        label = html.escape(short(name))
        yield f'<text class="dim" x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{label}</text>'
        for column, value in enumerate(block.values[number]):
            x = _LEFT + cell * column
            fact = in_html(block.facts[number][column])
            yield (
                f'<rect class="heat" x="{x:.1f}" y="{y}" width="{max(cell - 1, 1):.1f}" height="{_ROW - 1}" '
                f'fill-opacity="{0.04 + 0.56 * min(max(value, 0), 1):.3f}"><title>{fact}</title></rect>'
            )
            mark = block.marks[number][column]
            if mark and cell >= 9 * len(mark):
                yield (
                    f'<text class="mark" x="{x + cell / 2:.1f}" y="{y + 15}" text-anchor="middle" '
                    f'pointer-events="none">{in_html(mark)}</text>'
                )


def lane_lines(block: LaneSets, width: int) -> list[Words]:
    """Returns the first set of lanes in `block` as lines of at most `width` characters, without its title."""
    if not block.sets:
        return []
    lanes = block.sets[0]
    name = max((len(each) for each, _ in lanes.lanes), default=0)
    bar = max(width - name - 2, _LEAST_BAR)
    end = _end(lanes)
    lines = [words(lanes.about)]
    for label, stretches in lanes.lanes[:_MOST_LANES]:
        glyphs: list[tuple[str, Role]] = [(" ", "")] * bar
        for each in stretches:
            first, last = each.start * bar // end, max(each.end * bar // end, each.start * bar // end + 1)
            for at in range(first, min(last, bar)):
                glyphs[at] = _GLYPHS[each.key]
        lines.append(words(Span(f"{label:>{name}}  ", "dim"), *(Span(*glyph) for glyph in glyphs)))
    if len(lanes.lanes) > _MOST_LANES:
        lines.append(words(Span(f"{len(lanes.lanes) - _MOST_LANES:,} more", "dim")))
    legend = [part for key, text in block.legend for part in (Span(*_GLYPHS[key]), f" {text}   ")]
    lines.append(words(*legend, Span(f"{duration(end)} in all", "dim")))
    return lines


def lane_drawings(block: LaneSets) -> str:
    """Returns all sets of lanes in `block` as HTML. If the reader opens one set, the others close."""
    parts = []
    for number, lanes in enumerate(block.sets):
        opened = " open" if number == 0 else ""
        parts.append(
            f'<details name="lanes"{opened}><summary>{in_html(lanes.title)}</summary>'
            f"<p>{in_html(lanes.about)}</p>{_lanes_drawing(lanes)}</details>"
        )
    legend = " ".join(
        f'<span><svg class="swatch" viewBox="0 0 16 12" aria-hidden="true">'
        f'<rect class="{key}" width="14" height="12"/></svg> {html.escape(text)}</span>'
        for key, text in block.legend
    )
    return f'{"".join(parts)}<p class="legend">{legend}</p>' if parts else ""


def _lanes_drawing(lanes: Lanes) -> str:
    end = _end(lanes)
    height = _ROW * (len(lanes.lanes) + 1) + 4
    inside = []
    for number, (name, stretches) in enumerate(lanes.lanes):
        y = _ROW * number
        label = html.escape(short(name))
        inside.append(f'<text class="dim" x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{label}</text>')
        inside += [_stretch(each, y, end) for each in stretches]
    for quarter in range(5):
        x = _LEFT + (_WIDTH - _LEFT) * quarter / 4
        anchor = "start" if quarter == 0 else "end" if quarter == 4 else "middle"
        time = html.escape(duration(end * quarter // 4))
        inside.append(f'<text class="dim" x="{x:.1f}" y="{height - 6}" text-anchor="{anchor}">{time}</text>')
    about = in_html(lanes.about)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{about}">\n' + "\n".join(inside) + "\n</svg>"


def _stretch(each: Stretch, y: int, end: int) -> str:
    scale = (_WIDTH - _LEFT) / end
    x, wide = _LEFT + each.start * scale, max((each.end - each.start) * scale, 1.0)
    text = in_html(each.text)
    return (
        f'<rect class="{each.key}" x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{_ROW - 3}">'
        f"<title>{text}</title></rect>"
    )


def _end(lanes: Lanes) -> int:
    return max((each.end for _, stretches in lanes.lanes for each in stretches), default=1) or 1
