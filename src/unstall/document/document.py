"""The class `Document`: what a command says, without an output format.

A command builds a document, and a renderer (`terminal`, `markdown`, `github`, `html`, `json`) reads
it. Texts in a document are not escaped: each renderer escapes them for its own syntax. The JSON
format has only the document's `data`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["", "strong", "dim", "subject", "place", "name", "good", "bad", "warning", "same"]
"""The style of a piece of text. Texts with the styles `subject`, `place` and `name` come from a
recording: Markdown shows them as code.
"""


class Span(msgspec.Struct, frozen=True):
    """A piece of text in one style.

    Attributes:
        text: The text.
        role: The style.
        brief: A shorter text, which replaces `text` in tables on a terminal, because figures leave
            little space there. "" for none.
    """

    text: str
    role: Role = ""
    brief: str = ""


Words: TypeAlias = tuple[Span, ...]


def words(*parts: str | Span | Words) -> Words:
    """Returns one line of text, made from plain texts, pieces of text in a style, and other lines.
    Empty parts are left out.
    """
    return tuple(span for part in parts for span in _spans(part) if span.text)


def labelled(label: str, *parts: str | Span | Words) -> Words:
    """Returns one line of text: a label, then what it is about (see `words`)."""
    return words(Span(f"{label}: ", "dim"), *parts)


def _spans(part: str | Span | Words) -> Iterator[Span]:
    if isinstance(part, str):
        yield Span(part)
    elif isinstance(part, Span):
        yield part
    else:
        yield from part


class Prose(msgspec.Struct, frozen=True):
    """A paragraph of a document, which consists of several lines. If `small` is true, the paragraph is a footnote."""

    lines: tuple[Words, ...]
    small: bool = False


class Bullets(msgspec.Struct, frozen=True):
    """A list of sentences in a document, under a title."""

    title: Words
    items: tuple[Words, ...]


class Part(msgspec.Struct, frozen=True):
    """A part of a stacked bar.

    Attributes:
        key: Selects the style of the part, such as "compute" or "idle: sync".
        label: What the part is called in the legend.
        size: The length of the part. Only the ratio to the other parts of the bar counts.
    """

    key: str
    label: str
    size: int


class Bar(msgspec.Struct, frozen=True):
    """A stacked bar. The caption tells the bar from the other bars of a block."""

    parts: tuple[Part, ...]
    caption: str = ""


class Bars(msgspec.Struct, frozen=True):
    """Stacked bars on one scale, with a common legend: a block of a document.

    Attributes:
        title: The title.
        bars: The bars.
        names: The headings of the figures in the legend.
        legend: A row of the legend for each part of the bars: the part, and its figures as texts.
    """

    title: str
    bars: tuple[Bar, ...]
    names: tuple[str, ...]
    legend: tuple[tuple[Part, tuple[str, ...]], ...]


class Column(msgspec.Struct, frozen=True):
    """A column of figures in a table. `name` is its heading. `align` is the side to which figures
    are aligned. If `extra` is true, the column is left out if there is little space.
    """

    name: str
    align: Literal["left", "right"] = "right"
    extra: bool = False


class Row(msgspec.Struct, frozen=True):
    """A row of a table.

    Attributes:
        text: The text of the row.
        figures: A figure for each column, as text.
        below: Lines of text below the row.
    """

    text: Words
    figures: tuple[str | Words, ...]
    below: tuple[Words, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """A table: a block of a document. Each row has a text and figures.

    Attributes:
        title: The title, which is also the heading of the column of texts.
        columns: The columns of figures, with their headings.
        rows: The rows.
        limited: Whether only the first rows are shown. The option --top sets how many.
        fold: How Markdown and HTML show the table at first: "closed" or "open". If "", the table
            cannot be folded.
        compact: Whether the table is only as wide as its texts, instead of as wide as the page.
    """

    title: Words
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    limited: bool = False
    fold: Literal["", "open", "closed"] = ""
    compact: bool = False


class Entry(msgspec.Struct, frozen=True):
    """An entry of a report, such as a finding.

    Attributes:
        title: The title.
        figures: The figures, as texts.
        details: Further texts, each as (label, text).
    """

    title: Words
    figures: tuple[str, ...]
    details: tuple[tuple[str, Words], ...]


class Entries(msgspec.Struct, frozen=True):
    """Numbered entries, such as findings: a block of a document. Only the first entries are shown.
    The option --top sets how many.

    Attributes:
        title: The title.
        names: The headings of the figures of the entries.
        entries: The entries.
        before_number: A text before each number, such as "b" for "b1".
    """

    title: Words
    names: tuple[str, ...]
    entries: tuple[Entry, ...]
    before_number: str = ""


class Code(msgspec.Struct, frozen=True):
    """Lines of source, of a patch or of commands, under a title: a block of a document. `language`
    is Markdown's name for the language.
    """

    title: Words
    lines: tuple[str, ...]
    language: str = ""


class Sample(msgspec.Struct, frozen=True):
    """The measured times of one statement.

    Attributes:
        name: The name of the statement.
        about: A text about the statement.
        values: The times, in ns, ascending.
        median: The median of the times, in ns.
        low: The lower end of the confidence interval of the median, in ns.
        high: The upper end of the confidence interval of the median, in ns.
    """

    name: str
    about: str
    values: Sequence[float]
    median: float
    low: float
    high: float


class Histograms(msgspec.Struct, frozen=True):
    """Histograms of measured times, in ns: a block of a document. The histograms of a group share
    an axis. Only HTML shows them.
    """

    groups: tuple[tuple[Sample, ...], ...]


class Level(msgspec.Struct, frozen=True):
    """One bar of a waterfall, such as the step time after one change.

    Attributes:
        text: The label of the bar.
        size: The length of the bar.
        was: The length of the previous bar.
        takes: The length as text.
        gain: The difference from the previous bar, as text.
        below: Lines of text below the label.
    """

    text: Words
    size: int
    was: int
    takes: Span
    gain: str = ""
    below: tuple[Words, ...] = ()


class Waterfall(msgspec.Struct, frozen=True):
    """Bars on one scale, each with its difference from the previous bar: a block of a document.

    `names` are the headings of the two figures of each bar: its length, and the difference.
    """

    title: Words
    caption: Words
    names: tuple[str, str]
    levels: tuple[Level, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Values along a run, each with the bound up to which it is as expected, on a logarithmic axis:
    a block of a document.

    If there is not enough space for all values, successive values share a bar. The bar shows the
    value with the largest ratio to its bound. Values of 0 and nan are not drawn.

    Attributes:
        title: The title.
        values: The values, in order.
        bounds: The bound of each value.
        within: The legend for the part of a value up to its bound.
        beyond: The legend for the part of a value that exceeds its bound.
        bound: The legend for the bounds.
        most: The smallest value that is drawn in a separate row at the top. Values of inf are
            always in this row.
        sections: The parts of the run, each as (index of the part's first value, name of the part).
        mark: A value to mark, as (index of the value, text beside the mark); None for none.
    """

    title: Words
    values: Sequence[float]
    bounds: Sequence[float]
    within: str
    beyond: str
    bound: str
    most: float = math.inf
    sections: tuple[tuple[int, str], ...] = ()
    mark: tuple[int, Words] | None = None


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """Two amounts over time, as areas on one linear axis from 0: a block of a document. One area
    stands in front of the other.

    Attributes:
        title: The title.
        front: The amount in front, at equal distances in time.
        behind: The amount behind, which is at least as large; empty if it is not known.
        names: The names of both amounts, that of `front` first.
        most: The largest amount, as text.
        ends: The first and the last time, as texts.
        mark: A time to mark, as (position of the time as a share of the whole, text beside the
            mark); None for none.
    """

    title: Words
    front: tuple[int, ...]
    behind: tuple[int, ...]
    names: tuple[str, str]
    most: str
    ends: tuple[str, str]
    mark: tuple[float, Words]


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a graph that is drawn.

    Attributes:
        text: The text in the node.
        below: A second line of text.
        about: A longer text, which is shown when the pointer is over the node.
        lane: The number of the colour at the node's side. Nodes of one stream have one colour.
        strong: Whether the node is highlighted.
    """

    text: str
    below: str
    about: str
    lane: int = 0
    strong: bool = False


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of a graph that is drawn.

    Attributes:
        earlier: The index of the node where the edge begins.
        later: The index of the node where it ends, which is larger.
        text: A text beside the edge.
        strong: Whether the edge is highlighted.
        dashed: Whether the edge is a dashed line.
    """

    earlier: int
    later: int
    text: str = ""
    strong: bool = False
    dashed: bool = False


class Graph(msgspec.Struct, frozen=True):
    """A directed graph without cycles: a block of a document. Each edge goes from a node to a later
    node. Only HTML and SVG show graphs.
    """

    title: Words
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphLine, ...]


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """A table that shows values as shades: a block of a document. It has one row for each thing,
    such as a rank, and one column for each time.

    Attributes:
        title: The title.
        rows: The names of the rows.
        columns: The names of the columns.
        values: The shade of each cell from 0 to 1, by row and column.
        marks: A short text in each cell, such as the number of another row; "" for none.
        facts: A sentence on each cell.
        legend: What a shade and a mark mean.
    """

    title: Words
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    marks: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, ...], ...]
    legend: str


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of time in a lane, from `start` to `end` in ns. `key` selects its style: "work",
    "wait" or "transfer". `text` says what happens in it.
    """

    key: Literal["work", "wait", "transfer"]
    start: int
    end: int
    text: str


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Several lanes on one axis of time. A lane is what one thing, such as a rank, does over time.

    Attributes:
        title: The title.
        about: A sentence about the lanes.
        lanes: The lanes, each as (name, stretches of time).
    """

    title: str
    about: str
    lanes: tuple[tuple[str, tuple[Stretch, ...]], ...]


class LaneSets(msgspec.Struct, frozen=True, kw_only=True):
    """Several sets of lanes: a block of a document. A lane is what one thing, such as a rank, does
    over time. In HTML, the reader chooses a set. Other formats show the first set.

    `legend` has the meaning of each `key` of a stretch of time, in the order in which to list them.
    """

    title: Words
    sets: tuple[Lanes, ...]
    legend: tuple[tuple[Literal["work", "wait", "transfer"], str], ...]


Block: TypeAlias = (
    Prose | Bullets | Bars | Table | Entries | Code | Histograms | Waterfall | Chart | Area | Graph | HeatMap | LaneSets
)


class Annotation(msgspec.Struct, frozen=True):
    """A message that continuous integration shows at a source line.

    Attributes:
        level: How serious the message is.
        title: The title.
        text: The message.
        file: The file; None if it is not known.
        line: The line; None if it is not known.
        identity: A text that identifies the message. It stays the same if the line moves.
    """

    level: Literal["notice", "warning", "error"]
    title: str
    text: str
    file: str | None = None
    line: int | None = None
    identity: str = ""


class Case(msgspec.Struct, frozen=True):
    """A check, such as a limit of a budget, and its outcome. SARIF has a rule for each check, and
    JUnit has a test case for each check.

    Attributes:
        key: Identifies the check. It is the same in all runs.
        name: The name of the check.
        state: "held" if the check succeeded, "exceeded" if it failed, "unknown" if it could not be
            made.
        text: The outcome in words.
        at: A message for each source line at which the check failed.
    """

    key: str
    name: str
    state: Literal["held", "exceeded", "unknown"]
    text: str
    at: tuple[Annotation, ...] = ()


def _nothing_more(path: Path) -> Mapping[str, object]:
    return {}


class Page(msgspec.Struct, frozen=True):
    """What the interactive HTML page of a document shows in addition to the document's data.

    Attributes:
        fields: Fields that the page's script gets in addition to the data.
        draw: A function that returns the pictures in packed form. It is called only when the page
            is rendered.
        waterfall: A waterfall above the rest of the page; None for none.
        fields_at: A function that gets the path of the page's file and returns more fields for the
            page's script.
    """

    fields: Mapping[str, object]
    draw: Callable[[], Sequence[bytes]]
    waterfall: Waterfall | None = None
    fields_at: Callable[[Path], Mapping[str, object]] = _nothing_more

    def written_to(self, path: Path) -> Page:
        """Returns a copy of the page to which the fields are added that depend on the file to which
        the page is written. `path` is that file.
        """
        return msgspec.structs.replace(self, fields={**self.fields, **self.fields_at(path)})


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a command says, without an output format.

    Attributes:
        title: The name of the command.
        about: Lines that describe the run.
        caveats: Warnings that the reader must know before the summary.
        summary: The conclusion, in one or more sentences.
        blocks: The content below the summary.
        data: The result of the command, as data. Its JSON form is stable.
        annotations: Messages that continuous integration shows at source lines.
        cases: The checks that were made, if any.
        page: What the interactive HTML page shows. If None, the HTML format is a static page that
            shows `blocks`.
    """

    title: str
    about: tuple[Words, ...]
    caveats: tuple[Block, ...] = ()
    summary: str = ""
    blocks: tuple[Block, ...]
    data: msgspec.Struct | Mapping[str, object]
    annotations: tuple[Annotation, ...] = ()
    cases: tuple[Case, ...] = ()
    page: Page | None = None
