"""Renders a document as GitHub-flavoured Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch
from itertools import groupby

from unstall.document import area_lines, chart
from unstall.document.document import (
    Area,
    Bars,
    Block,
    Bullets,
    Chart,
    Code,
    Document,
    Entries,
    Entry,
    Graph,
    HeatMap,
    Histograms,
    LaneSets,
    Prose,
    Row,
    Span,
    Table,
    Waterfall,
    Words,
)
from unstall.document.heat_map import lane_lines, map_lines
from unstall.document.plain import plain, text_of
from unstall.document.waterfall import as_table

_CODE = {"subject", "place", "name"}
_STRONG = {"strong", "bad", "warning"}
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$]")
_CHART_WIDTH = 80  # columns: a block of code in a comment has about that many
_LEADING = re.compile(r"^(\d*)([.)](?=\s|$)|[#+=-])")  # would make a line a heading, a list or a rule


def render(document: Document, *, top: int = 10) -> str:
    """Returns a document as Markdown, in this order: the title, the caveats, the summary, the lines
    about the run, the blocks.

    Names that come from a recording are code in the Markdown. `top` limits the number of rows of
    tables.
    """
    sections = [
        f"### {escape(document.title)}",
        *(_block(block, top) for block in document.caveats),
        _strong(document.summary),
        "  \n".join(map(inline, document.about)),
        *(_block(block, top) for block in document.blocks),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: str) -> str:
    """Returns free text in a form that Markdown shows unchanged, without markup, HTML, links or mentions."""
    return _LEADING.sub(r"\1\\\2", _inner(text.strip()))


def _inner(text: str) -> str:
    """Escapes text that is not at the beginning of a line. Such text cannot start a heading or a list. Blanks at both
    ends of the text remain."""
    text = _SPECIAL.sub(r"\\\g<0>", plain(text))
    text = text.replace("://", "&#58;//").replace("www.", "www&#46;")
    return text.replace("@", "@<!-- -->")


def code(text: str) -> str:
    """Returns `text` as code in Markdown (a code span); "" if the text is empty."""
    text = plain(text).strip()
    if not text:
        return ""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def inline(line: Words) -> str:
    """Returns one line of a document as Markdown. The line consists of pieces of text. Adjacent
    pieces without a style are escaped together, as one text.
    """
    runs = [
        (kind, [span.text for span in spans] if kind == "code" else ["".join(span.text for span in spans)])
        for kind, spans in groupby(line, _kind)
    ]
    shown = []
    for number, (kind, texts) in enumerate(runs):
        make = {"code": code, "strong": _strong}.get(kind, _inner if number else _opening)
        shown += [make(text) for text in texts]
    return "".join(shown).strip()


def _kind(span: Span) -> str:
    return "code" if span.role in _CODE else "strong" if span.role in _STRONG else "text"


def _opening(text: str) -> str:
    """Escapes text at the beginning of a line. If the text ends with blanks, the result ends with a blank."""
    return escape(text) + (" " if text[-1:].isspace() else "")


def _strong(text: str) -> str:
    inside = escape(text)
    return f"**{inside}**" if inside else ""


@singledispatch
def _block(block: Block, top: int) -> str:
    raise NotImplementedError(type(block))


@_block.register
def _prose(block: Prose, top: int) -> str:
    lines = [inline(line) for line in block.lines]
    return "  \n".join(f"<sub>{line}</sub>" if block.small else line for line in lines if line)


@_block.register
def _bullets(block: Bullets, top: int) -> str:
    return "\n".join([f"{inline(block.title)}:", *(f"- {inline(item)}" for item in block.items)])


@_block.register
def _bars(block: Bars, top: int) -> str:
    rows = [(escape(part.label), *figures) for part, figures in block.legend]
    return _grid((block.title, *block.names), rows, "<" + ">" * len(block.names))


@_block.register
def _table(block: Table, top: int) -> str:
    rows = block.rows[:top] if block.limited else block.rows
    heading = "" if block.fold else inline(block.title)
    header = heading, *(escape(column.name) for column in block.columns)
    align = "<" + "".join("<" if column.align == "left" else ">" for column in block.columns)
    grid = _grid(header, [_cells(row) for row in rows], align)
    if not block.fold:
        return "\n\n".join([grid, *_more(len(block.rows) - len(rows))])
    opening = "<details open>" if block.fold == "open" else "<details>"
    title = "".join(escape(span.text) for span in block.title)
    summary = f"<summary>{title}: {len(rows):,} of {len(block.rows):,}</summary>"
    return "\n\n".join([opening + summary, grid, "</details>"])


def _cells(row: Row) -> tuple[str, ...]:
    text = "<br>".join(_cell(inline(line)) for line in (row.text, *row.below))
    figures = (figure if isinstance(figure, str) else _cell(inline(figure)) for figure in row.figures)
    return text, *figures


@_block.register
def _waterfall(block: Waterfall, top: int) -> str:
    return _table(as_table(block), top)


@_block.register
def _entries(block: Entries, top: int) -> str:
    shown = block.entries[:top]
    title = "".join(escape(span.text) for span in block.title)
    items = [_entry(f"{block.before_number}{number}.", entry, block.names) for number, entry in enumerate(shown, 1)]
    return "\n\n".join([f"#### {title}", *items, *_more(len(block.entries) - len(shown))])


def _entry(number: str, entry: Entry, names: Sequence[str]) -> str:
    named = zip(names, entry.figures, strict=True)
    figures = ", ".join(f"{name} **{figure}**" for name, figure in named if figure.strip("-"))
    title = inline(entry.title)
    details = (f"*{label}:* {inline(text)}" for label, text in entry.details)
    return "  \n   ".join([f"{number} {title}{figures and ': ' + figures}", *details])


@_block.register
def _code(block: Code, top: int) -> str:
    lines = [plain(line.expandtabs()) for line in block.lines]
    return f"{inline(block.title)}\n\n{_fenced(lines, block.language)}"


@_block.register
def _chart(block: Chart, top: int) -> str:
    return _drawn(block.title, chart.as_lines(block, _CHART_WIDTH))


@_block.register
def _area(block: Area, top: int) -> str:
    return _drawn(block.title, area_lines.as_lines(block, _CHART_WIDTH))


@_block.register
def _heat_map(block: HeatMap, top: int) -> str:
    return _drawn(block.title, map_lines(block, _CHART_WIDTH))


@_block.register
def _lane_sets(block: LaneSets, top: int) -> str:
    return _drawn(block.title, lane_lines(block, _CHART_WIDTH))


def _drawn(title: Words, lines: Sequence[Words]) -> str:
    shown = [plain(text_of(line)).rstrip() for line in lines]
    return f"{inline(title)}\n\n{_fenced(shown, 'text')}" if shown else ""


def _fenced(lines: Sequence[str], language: str) -> str:
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(longest + 1, 3)
    return "\n".join([f"{fence}{language}", *lines, fence])


@_block.register
def _histograms(block: Histograms, top: int) -> str:
    return ""


@_block.register
def _graph(block: Graph, top: int) -> str:
    return ""


def _more(left: int) -> list[str]:
    return [f"… and {left:,} more."] if left > 0 else []


def _cell(text: str) -> str:
    """Escapes Markdown for the cell of a table. A "|" would end the cell even in a code span."""
    return text.replace("|", "\\|")


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Returns a table in Markdown. `align` has "<" or ">" for each column. The cells must already be Markdown."""
    if not rows:
        return ""
    rule = tuple("---" if side == "<" else "--:" for side in align)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))
