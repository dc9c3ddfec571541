"""Renders a document for a terminal, a pipe or a text file.

The renderer uses only the sixteen colours that a terminal's theme defines, without white and black.
So the text is readable in light and dark themes. Everything that a colour shows is also shown by a
character or a word.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial, singledispatch
from itertools import zip_longest
from typing import NamedTuple

import msgspec
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, OverflowMethod, RenderableType
from rich.containers import Lines
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from unstall.document import area_lines, chart
from unstall.document.bar import DrawnBar, look
from unstall.document.document import (
    Area,
    Bars,
    Block,
    Bullets,
    Chart,
    Code,
    Column,
    Document,
    Entries,
    Entry,
    Graph,
    HeatMap,
    Histograms,
    LaneSets,
    Part,
    Prose,
    Role,
    Row,
    Table,
    Waterfall,
    Words,
)
from unstall.document.heat_map import lane_lines, map_lines
from unstall.document.plain import no_command, plain
from unstall.document.waterfall import as_table

_WIDEST = 120
_NOTEBOOK_WIDTH = 100
_FIGURE_WIDTH = 8  # of most figures, so that the columns of several tables line up
_LEAST_TEXT = 24  # columns beside figures; with fewer, figures go below the text
_BESIDE_EXTRA = 40  # the same, if extra columns are to be shown
_LEAST_NAME = 12  # the same in compact tables, whose names may be broken
_INDENT = 3
_MOST_INDENT = 16  # the narrowest terminals have to show texts beside it
_STYLES: dict[Role, str] = {
    "": "",
    "name": "",
    "strong": "bold",
    "subject": "bold",
    "dim": "dim",
    "place": "cyan",
    "good": "green",
    "bad": "bold red",
    "warning": "bold yellow",
    "same": "cyan",
}

# A character that is as wide as a space, but none, and that `plain` leaves in no text.
_GLUE = "\ue000"
_IN_FIGURE = re.compile(r"(?<=\d) (?=(?:%|(?:[nµm]?s|min|[KMGT]i?B|B|ppm)\b))")

# Names from a trace are plain text: they contain no markup, no emoji and no numbers to colour. In a notebook, a console
# of rich would display what it renders a second time.
_console = partial(Console, highlight=False, markup=False, emoji=False, force_jupyter=False)


def render(document: Document, *, top: int = 10, width: int = 80) -> str:
    """Returns a document as plain text for a terminal with `width` columns, without colours. `top`
    limits the number of rows of tables.
    """
    console = _console(file=io.StringIO(), width=min(width, _WIDEST), color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(layout(document, top))
    return "".join(f"{no_command(line.rstrip())}\n" for line in capture.get().splitlines())


def show(document: Document, *, top: int = 10) -> None:
    """Prints a document to stdout, in colour if stdout is a terminal. Obeys the environment
    variables `NO_COLOR` and `COLUMNS`. `top` limits the number of rows of tables.
    """
    console = _console()
    if not console.is_terminal:
        print(render(document, top=top, width=console.width), end="")
        return
    console.width = min(console.width, _WIDEST)
    console.print(layout(document, top))


def notebook(document: Document, *, top: int = 10) -> str:
    """Returns a document as a piece of HTML for an output cell of a notebook. `top` limits the
    number of rows of tables.
    """
    console = _console(file=io.StringIO(), width=_NOTEBOOK_WIDTH, record=True, color_system="standard")
    console.print(layout(document, top))
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>')


def layout(document: Document, top: int) -> Group:
    """Returns a document as parts that `rich` can print, in this order: the lines about the run,
    the caveats, the summary, the blocks. An empty line stands between the parts.

    `top` limits the number of rows of tables.
    """
    summary = _Whole(plain(document.summary), style="bold") if document.summary else None
    caveats, others = ([_block(block, top) for block in each] for each in (document.caveats, document.blocks))
    about = _lines(document.about) if document.about else None
    blocks = [about, *caveats, summary, *others]
    shown: list[RenderableType] = []
    for block in blocks:
        if block is not None:
            shown += [Text(), block] if shown else [block]
    return Group(*shown)


class _Whole(Text):
    """A text that is never wrapped between a figure and its unit, such as "4.5 %"."""

    def wrap(
        self,
        console: Console,
        width: int,
        *,
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        tab_size: int = 8,
        no_wrap: bool | None = None,
    ) -> Lines:
        """Wraps the text as `rich` does, which does not know these spaces as such."""
        glued = self.copy()
        glued.plain = _IN_FIGURE.sub(_GLUE, self.plain)
        lines = glued.wrap(console, width, justify=justify, overflow=overflow, tab_size=tab_size, no_wrap=no_wrap)
        for line in lines:
            line.plain = line.plain.replace(_GLUE, " ")
        return lines


def _text(line: Words, style: str = "") -> Text:
    text = _Whole(style=style, overflow="fold")
    for span in line:
        text.append(plain(span.text), _STYLES[span.role])
    return text


def _lines(lines: Iterable[Words]) -> Group:
    return Group(*map(_text, lines))


@singledispatch
def _block(block: Block, top: int) -> RenderableType | None:
    raise NotImplementedError(type(block))


@_block.register
def _prose(block: Prose, top: int) -> RenderableType:
    return Group(*(_text(line, "dim" if block.small else "") for line in block.lines))


@_block.register
def _bullets(block: Bullets, top: int) -> RenderableType:
    grid = _two_columns()
    for item in block.items:
        grid.add_row("-", _text(item))
    return Group(_text(block.title, "bold"), grid)


@_block.register
def _bars(block: Bars, top: int) -> RenderableType:
    longest = max(_size(bar.parts) for bar in block.bars)
    drawn: list[RenderableType] = []
    for bar in block.bars:
        drawn += [Text(bar.caption, style="dim")] if bar.caption else []
        drawn.append(DrawnBar(bar.parts, _size(bar.parts) / longest))
    return Group(*drawn, Text(), _Legend(block))


def _size(parts: Iterable[Part]) -> int:
    return sum(part.size for part in parts)


class _Legend:
    """The legend of bars. If there are several bars, or if two columns are too wide, the legend has one column.
    Otherwise, it has two columns."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Grid]:
        if len(self._bars.bars) > 1:
            return [self._grid(1)]
        two = self._grid(2)
        needed = console.measure(two, options=options.update_width(_WIDEST)).maximum
        return [two if needed <= options.max_width else self._grid(1)]

    def _grid(self, columns: int) -> Grid:
        bars = self._bars
        grid = Grid.grid(padding=(0, 1))
        for column in range(columns):
            if column:
                grid.add_column(min_width=3)
            for justify in ("left", "left", *("right" for _ in bars.names)):
                grid.add_column(justify="right" if justify == "right" else "left", no_wrap=True)
        if len(bars.bars) > 1:
            grid.add_row("", *(Text(name, style="dim") for name in (bars.title, *bars.names)))
        rows = [
            (Text(look(part)[0] * 2, look(part)[1]), Text(part.label), *map(Text, figures))
            for part, figures in bars.legend
        ]
        height = -(-len(rows) // columns)
        for left, right in zip_longest(rows[:height], rows[height:], fillvalue=()):
            grid.add_row(*left, "", *right)
        return grid


@_block.register
def _table(block: Table, top: int) -> RenderableType:
    rows = block.rows[:top] if block.limited else block.rows
    lines = [_Line(_text(_brief(row.text)), [_text(line) for line in row.below], _figures(row)) for row in rows]
    ledger = _Ledger(_text(block.title, "bold"), block.columns, lines, fill=not block.compact)
    return Group(ledger, *_more(len(block.rows), len(rows)))


def _brief(line: Words) -> Words:
    return tuple(msgspec.structs.replace(span, text=span.brief or span.text) for span in line)


def _figures(row: Row) -> list[Text]:
    return [Text(figure) if isinstance(figure, str) else _text(figure) for figure in row.figures]


@_block.register
def _waterfall(block: Waterfall, top: int) -> RenderableType:
    return _table(as_table(block), top)


@_block.register
def _entries(block: Entries, top: int) -> RenderableType:
    shown = block.entries[:top]
    columns = [Column(name) for name in block.names]
    blocks: list[RenderableType] = [_Ledger(_text(block.title, "bold"), columns)]
    for number, entry in enumerate(shown, 1):
        numbered = _numbered(f"{block.before_number}{number}.", entry)
        line = _Line(numbered, [], [Text(figure) for figure in entry.figures])
        blocks += [
            *([Text()] if number > 1 else []),
            _Ledger(None, columns, [line]),
            Padding(_details(entry), (0, 0, 0, _INDENT)),
        ]
    return Group(*blocks, *_more(len(block.entries), len(shown)))


def _numbered(number: str, entry: Entry) -> RenderableType:
    grid = _two_columns()
    grid.add_row(number, _text(entry.title))
    return grid


def _details(entry: Entry) -> RenderableType:
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True, min_width=len("safe if"))
    grid.add_column(overflow="fold")
    for label, text in entry.details:
        grid.add_row(label, _text(text))
    return grid


@_block.register
def _code(block: Code, top: int) -> RenderableType:
    whole = block.language in ("diff", "sh", "text")  # no part of a patch, a command or an output may be missing
    lines = (
        Text(plain(line.expandtabs()), overflow="fold" if whole else "ellipsis", no_wrap=not whole)
        for line in block.lines
    )
    return Group(_text(block.title, "bold"), *lines)


@_block.register
def _histograms(block: Histograms, top: int) -> None:
    return None


@_block.register
def _chart(block: Chart, top: int) -> RenderableType:
    return _AsWide(block.title, partial(chart.as_lines, block))


@_block.register
def _graph(block: Graph, top: int) -> None:
    return None


@_block.register
def _area(block: Area, top: int) -> RenderableType:
    return _AsWide(block.title, partial(area_lines.as_lines, block))


@_block.register
def _heat_map(block: HeatMap, top: int) -> RenderableType:
    return _AsWide(block.title, partial(map_lines, block))


@_block.register
def _lane_sets(block: LaneSets, top: int) -> RenderableType:
    return _AsWide(block.title, partial(lane_lines, block))


class _AsWide:
    """Draws lines that are as wide as the available space, under a title."""

    def __init__(self, title: Words, lines: Callable[[int], list[Words]]) -> None:
        self._title, self._lines = title, lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Text]:
        return [_text(self._title, "bold"), *map(_text, self._lines(options.max_width))]


class _Line(NamedTuple):
    """A row of a ledger: a text, the lines below the text, and the figures beside the text."""

    text: RenderableType
    below: Sequence[Text]
    figures: Sequence[Text]

    def in_full(self) -> RenderableType:
        """Returns the text and the lines below the text."""
        return Group(self.hanging(), *map(_indented, self.below)) if self.below else self.hanging()

    def hanging(self) -> RenderableType:
        """Returns the text. If it is wrapped, all of its lines are indented as the first is."""
        return _hanging(self.text) if isinstance(self.text, Text) else self.text

    def longest_word(self) -> int:
        """Returns the width of the longest word in the text and of the indent before it, in characters."""
        if not isinstance(self.text, Text):
            return 0
        indent = _indent_of(self.text)
        return max((indent + len(word) for word in self.text.plain[indent:].split()), default=0)


def _indent_of(text: Text) -> int:
    """Returns how many characters are before the first word: spaces, or a mark such as "▲" and spaces."""
    indent = re.match(rf"(?:[^\w\s] )?\s{{0,{_MOST_INDENT}}}", text.plain)
    return indent.end() if indent else 0


def _hanging(text: Text) -> RenderableType:
    indent = _indent_of(text)
    if not indent:
        return text
    grid = Grid.grid()
    grid.add_column(no_wrap=True, width=indent)
    grid.add_column(overflow="fold")
    grid.add_row(text[:indent], _Whole(style=text.style, overflow="fold").append_text(text[indent:]))
    return grid


def _indented(text: Text) -> Padding:
    return Padding(_hanging(text), (0, 0, 0, _INDENT))


class _Ledger:
    """A table of texts and figures. If columns of figures in several ledgers have the same names, these columns line
    up.

    The figures are beside the text. If words of the text would have to be broken, the figures are below the text. If
    there is even less space, each figure follows the name of its column. If the ledger has no title, the columns show
    no names.
    """

    def __init__(
        self, title: Text | None, columns: Sequence[Column], lines: Sequence[_Line] = (), *, fill: bool = True
    ) -> None:
        self._title, self._columns, self._lines, self._fill = title, columns, lines, fill

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[RenderableType]:
        wide = options.update_width(4 * _WIDEST)
        widest = max((console.measure(line.in_full(), options=wide).maximum for line in self._lines), default=_WIDEST)
        longest = max((line.longest_word() for line in self._lines), default=0) if self._fill else 0
        every = range(len(self._columns))
        needed = [index for index in every if not self._columns[index].extra]
        for chosen, least in ((list(every), _BESIDE_EXTRA), (needed, _LEAST_TEXT)):
            widths = [self._width(index) for index in chosen]
            left = options.max_width - sum(widths) - 2 * len(widths)
            if left >= max(longest, min(least if self._fill else _LEAST_NAME, widest)):
                return [self._beside(chosen, widths)]
        return self._under(needed, widths) if left >= _LEAST_TEXT else self._packed(options.max_width)

    def _width(self, index: int) -> int:
        """Returns the width of a column of figures, in characters."""
        name = self._columns[index].name
        figures = (len(line.figures[index]) for line in self._lines)
        return max(len(name), *(figures or (0,)), _FIGURE_WIDTH if self._fill else 0)

    def _grid(self, chosen: Sequence[int], widths: Sequence[int], *, shows_names: bool) -> Grid:
        grid = Grid(box=None, padding=(0, 1), pad_edge=False, expand=self._fill, show_header=shows_names)
        grid.add_column(self._title or "", ratio=1 if self._fill else None, overflow="fold")
        for index, width in zip(chosen, widths, strict=True):
            column = self._columns[index]
            grid.add_column(Text(column.name, style="dim"), justify=column.align, width=width, no_wrap=True)
        return grid

    def _shows_names(self) -> bool:
        return self._title is not None and bool(self._title.plain or any(column.name for column in self._columns))

    def _beside(self, chosen: Sequence[int], widths: Sequence[int]) -> Grid:
        grid = self._grid(chosen, widths, shows_names=self._shows_names())
        for line in self._lines:
            grid.add_row(line.in_full(), *(line.figures[index] for index in chosen))
        return grid

    def _under(self, chosen: Sequence[int], widths: Sequence[int]) -> list[RenderableType]:
        blocks: list[RenderableType] = [self._grid(chosen, widths, shows_names=self._shows_names())]
        for line in self._lines:
            grid = self._grid(chosen, widths, shows_names=False)
            grid.add_row(*map(_indented, line.below[:1] or [Text()]), *(line.figures[index] for index in chosen))
            blocks += [line.hanging(), grid, *map(_indented, line.below[1:])]
        return blocks

    def _packed(self, width: int) -> list[RenderableType]:
        blocks: list[RenderableType] = [self._title] if self._title and self._title.plain else []
        names = [column.name for column in self._columns]
        for line in self._lines:
            named = [f"{name} {figure}".strip() for name, figure in zip(names, line.figures, strict=True) if figure]
            blocks += [
                line.in_full(),
                *(_indented(Text(text, style="dim")) for text in _packed(named, width - _INDENT)),
            ]
        return blocks


def _packed(items: Sequence[str], width: int) -> list[str]:
    """Returns the items, in order, on as few lines as possible. No item is split between lines."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 3 <= width:
            lines[-1] += f" · {item}"
        else:
            lines.append(item)
    return lines


def _more(count: int, shown: int) -> list[Text]:
    return [Text(f"… and {count - shown:,} more: --top {count}", style="dim")] if count > shown else []


def _two_columns() -> Grid:
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid
