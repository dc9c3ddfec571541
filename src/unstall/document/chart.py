"""Chooses which values of a chart are drawn, and on which axis. Also draws the chart as lines of
characters.

In the lines, a shade shows a value, a block shows the part of a value above its bound, and a dot
shows the bound. So the chart can be read without colours.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple

from rich.cells import cell_len

from unstall.document.document import Chart, Role, Span, Words, words
from unstall.document.plain import plain

HEIGHT = 10  # rows, at most
_FEWEST_DECADES = 4
_MOST_DECADES = 16  # smaller values are drawn at the bottom
_WIDEST_BAR = 4  # columns, with the gap
_FEWEST_COLUMNS = 8  # of a chart that can be read
_LONGEST_LABEL = len("1e-308")
_WITHIN, _DOT, _MARK = "▒", "·", "▲"
_BLOCKS = "▁▂▃▄▅▆▇█"
_Cell = tuple[str, Role]


class Point(NamedTuple):
    """A value of a chart, and the bound up to which the value is as expected."""

    value: float
    bound: float

    @property
    def is_beyond(self) -> bool:
        """Whether the value exceeds its bound."""
        return self.value > self.bound

    @property
    def share(self) -> float:
        """The value divided by its bound; 0 if the value is not positive."""
        if not self.value > 0:  # nan, too
            return 0.0
        share = self.value / self.bound if self.bound else math.inf
        return 1.0 if math.isnan(share) else share


@dataclass(frozen=True, slots=True)
class Axis:
    """The logarithmic axis of a chart, divided into rows.

    Attributes:
        low: The exponent of the power of ten at the lower end of the axis.
        step: How many powers of ten each row covers.
        rows: The number of rows, without the row for large values.
        over: Whether there is a row for large values above all other rows.
        most: The smallest value that counts as large.
    """

    low: int
    step: float
    rows: int
    over: bool
    most: float

    @property
    def height(self) -> int:
        """The number of all rows. If there is a row for large values, it is included."""
        return self.rows + self.over

    def level(self, value: float) -> float:
        """Returns the height at which a positive value is drawn, in rows from the bottom."""
        if value >= self.most:
            return self.height
        return min(max((math.log10(value) - self.low) / self.step, 0.0), self.rows)

    def row(self, value: float) -> int:
        """Returns the row in which a positive value is drawn. The lowest row has the number 0."""
        return min(int(self.level(value)), (self.height if value >= self.most else self.rows) - 1)

    def label(self, row: int) -> str:
        """Returns the label of a row: the power of ten at its lower edge, such as "1e-3".

        If the exponent is not a whole number, the label is "". The row for large values has the
        label "≥ …", or "inf".
        """
        if row == self.rows:
            return _over(self.most)
        power = self.low + row * self.step
        return f"1e{power:.0f}" if power == int(power) else ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn of a chart: one point for each stretch of successive values.

    Attributes:
        points: For each stretch, its point with the largest ratio of value to bound.
        starts: For each stretch, the index of its first value.
        axis: The axis on which the points are drawn.
    """

    points: tuple[Point, ...]
    starts: tuple[int, ...]
    axis: Axis

    @property
    def has_beyond(self) -> bool:
        """Whether at least one of the drawn values exceeds its bound."""
        return any(point.is_beyond for point in self.points)

    def stretch_of(self, number: int) -> int:
        """Returns the index of the stretch that contains a value of the chart. `number` is the index of the value."""
        return max(bisect_right(self.starts, number) - 1, 0)


def drawn(chart: Chart, most: int) -> Drawn:
    """Chooses at most `most` values of a chart to draw, and the axis on which they are drawn.

    If the chart has more values, it is divided into stretches, and one value of each stretch is
    drawn.
    """
    points = points_of(chart)
    chosen = [points[at] for at in largest([point.share for point in points], most)]
    return Drawn(tuple(chosen), tuple(_edges(len(points), most)[:-1]), _axis(chosen, chart.most))


def points_of(chart: Chart) -> list[Point]:
    """Returns all values of a chart, each with the bound up to which it is as expected."""
    return list(map(Point, chart.values, chart.bounds))


def largest(sizes: Sequence[float], most: int) -> list[int]:
    """Divides `sizes` into at most `most` stretches of successive elements. Returns, for each
    stretch, the index of its largest element.
    """
    edges = _edges(len(sizes), most)
    return [max(range(start, end), key=sizes.__getitem__) for start, end in pairwise(edges)]


def _edges(count: int, most: int) -> list[int]:
    stretches = min(count, most)
    return [count * at // stretches for at in range(stretches + 1)] if stretches else [0]


def _axis(points: Sequence[Point], most: float) -> Axis:
    shown = [each for point in points for each in point if each > 0]
    inside = [each for each in shown if each < most]
    over = len(inside) < len(shown)
    low = math.floor(math.log10(min(inside, default=0.1)))
    high = 1 + math.floor(math.log10(max(inside, default=0.1)))
    if over and math.isfinite(most):
        high = max(high, math.ceil(math.log10(most)))
    decades = min(max(high - low, _FEWEST_DECADES), _MOST_DECADES)
    space = HEIGHT - over
    if decades > space:
        step = -(-decades // space)
        rows = -(-decades // step)
        return Axis(high - rows * step, step, rows, over, most)
    each = space // decades
    axis = Axis(high - decades, 1 / each, each * decades, over, most)
    return axis if over or not inside else replace(axis, rows=axis.row(max(inside)) + 1)  # no empty row at the top


def _over(most: float) -> str:
    return "inf" if math.isinf(most) else f"≥ {most:g}"


def as_lines(chart: Chart, width: int) -> list[Words]:
    """Returns a chart as lines of at most `width` characters, without its title.

    Two kinds of lines may be longer: the text of the chart's `mark`, if it does not fit beside the
    mark, and an entry of the legend.
    """
    if not chart.values:
        return []
    columns = width - 2 - max(_LONGEST_LABEL, len(_over(chart.most)))
    if columns < _FEWEST_COLUMNS:
        return [chart.mark[1]] if chart.mark else []
    shown = drawn(chart, columns)
    gutter = 2 + max(len(shown.axis.label(row)) for row in range(shown.axis.height))
    wide = max(1, min(_WIDEST_BAR, columns // len(shown.points)))
    lines = [_row(shown, row, wide, gutter) for row in reversed(range(shown.axis.height))]
    lines.append(words(Span(" " * (gutter - 1) + "└" + _baseline(chart, shown, wide), "dim")))
    legend = _legend(chart, shown, width)
    return [*lines, *_marked(chart.mark, shown, wide, gutter, width), *legend]


def _row(shown: Drawn, row: int, wide: int, gutter: int) -> Words:
    cells = [cell for point in shown.points for cell in _cells(point, row, shown.axis, wide)]
    spans = (Span("".join(glyph for glyph, _ in run), role) for role, run in groupby(cells, lambda cell: cell[1]))
    label = shown.axis.label(row)
    return words(Span(f"{label:>{gutter - 2}} {'┤' if label else '│'}", "dim"), *spans)


def _cells(point: Point, row: int, axis: Axis, wide: int) -> list[_Cell]:
    """Returns the characters of a bar in one row.

    If the bar is wider than one character, the last character is a gap between bars. A line of dots, which shows the
    bound, has no gap.
    """
    cell = _cell(point, row, axis)
    if wide == 1:
        return [cell]
    return [cell] * (wide - 1) + [cell if cell[0] == _DOT else (" ", "")]


def _cell(point: Point, row: int, axis: Axis) -> _Cell:
    line = axis.row(point.bound) if point.bound > 0 else -1
    top = axis.row(point.value) if point.value > 0 else -1
    if point.is_beyond and max(line, 0) <= row <= top:
        part = axis.level(point.value) - row
        return _BLOCKS[min(int(part * len(_BLOCKS)), len(_BLOCKS) - 1)], "bad"
    if row <= top:
        return _WITHIN, "good"
    return (_DOT, "") if row == line else (" ", "")


def _baseline(chart: Chart, shown: Drawn, wide: int) -> str:
    """Returns the line below the bars. The line shows where each part of the run begins, and the part's name if there
    is space for the name.
    """
    line = ["─"] * (wide * len(shown.points))
    columns = [*(wide * shown.stretch_of(start) for start, _ in chart.sections), len(line)]
    for (_, name), start, end in zip(chart.sections, columns, columns[1:], strict=False):
        text = f" {plain(name)} "
        if start and end - start > 1:
            line[start] = "┴"
        if 2 + len(text) <= end - start:
            line[start + 2 : start + 2 + len(text)] = text
    return "".join(line)


def _marked(mark: tuple[int, Words] | None, shown: Drawn, wide: int, gutter: int, width: int) -> list[Words]:
    if mark is None:
        return []
    number, text = mark
    column = gutter + wide * shown.stretch_of(number)
    length = sum(cell_len(plain(span.text)) for span in text)
    caret = Span(_MARK, "bad")
    if column + 2 + length <= width:
        return [words(" " * column, caret, " ", text)]
    if length + 1 <= column:
        return [words(" " * (column - length - 1), text, " ", caret)]
    return [words(" " * column, caret), text]


def _legend(chart: Chart, shown: Drawn, width: int) -> list[Words]:
    entries = [words(Span(_WITHIN, "good"), f" {chart.within}")]
    entries += [words(Span(_BLOCKS[-1], "bad"), f" {chart.beyond}")] if shown.has_beyond else []
    entries.append(words(_DOT, f" {chart.bound}"))
    joined = words(*(words("   " if number else "", entry) for number, entry in enumerate(entries)))
    fits = sum(cell_len(plain(span.text)) for span in joined) <= width
    return [joined] if fits else entries
