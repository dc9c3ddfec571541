"""The class `Document`: the content of a report, independent of the output format.

A report builds a document, and a renderer (`terminal`, `markdown`, `github`, `html`, `json`) reads the document. Texts
in a document are not escaped: each renderer escapes them for its own syntax. The JSON format has only the document's
`data`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["", "strong", "dim", "subject", "place", "name", "good", "bad", "warning", "same"]
"""The style of a span. `subject`, `place` and `name` come from a trace: Markdown shows them as code."""


class Span(msgspec.Struct, frozen=True):
    """A piece of text in one style.

    Attributes:
        text: The text.
        role: The style.
        brief: A shorter text, which replaces `text` in tables on a terminal. In these tables, figures leave little
            space for texts.
    """

    text: str
    role: Role = ""
    brief: str = ""


Words: TypeAlias = tuple[Span, ...]


def words(*parts: str | Span | Words) -> Words:
    """Returns a line of spans, made from texts, spans and other lines. Empty parts are left out."""
    return tuple(span for part in parts for span in _spans(part) if span.text)


def _spans(part: str | Span | Words) -> Iterator[Span]:
    if isinstance(part, str):
        yield Span(part)
    elif isinstance(part, Span):
        yield part
    else:
        yield from part


class Prose(msgspec.Struct, frozen=True):
    """A paragraph of several lines. If `small` is true, the paragraph is a footnote."""

    lines: tuple[Words, ...]
    small: bool = False


class Bullets(msgspec.Struct, frozen=True):
    """A list of sentences under a title."""

    title: Words
    items: tuple[Words, ...]


class Part(msgspec.Struct, frozen=True):
    """A part of a stacked bar. `key` selects its style, such as "compute" or "idle: sync"."""

    key: str
    label: str
    size: int


class Bar(msgspec.Struct, frozen=True):
    """A stacked bar. The caption distinguishes the bar from other bars."""

    parts: tuple[Part, ...]
    caption: str = ""


class Bars(msgspec.Struct, frozen=True):
    """Stacked bars on one scale, with a common legend.

    The legend has a row for each part: the part and its figures. `names` are the headings of the figures.
    """

    title: str
    bars: tuple[Bar, ...]
    names: tuple[str, ...]
    legend: tuple[tuple[Part, tuple[str, ...]], ...]


class Column(msgspec.Struct, frozen=True):
    """A column of figures in a table. An `extra` column is left out if there is little space."""

    name: str
    align: Literal["left", "right"] = "right"
    extra: bool = False


class Row(msgspec.Struct, frozen=True):
    """A row of a table: its text, its figures, and lines of text below."""

    text: Words
    figures: tuple[str | Words, ...]
    below: tuple[Words, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """A table. Each row has a text and figures.

    Attributes:
        title: The title, which is also the heading of the column of texts.
        columns: The columns of figures, with their headings.
        rows: The rows.
        limited: Whether only the first rows are shown. The option --top sets how many rows are shown.
        fold: How Markdown and HTML show the table at first: "closed" or "open". If "", the table cannot be folded.
        compact: Whether the table is only as wide as its texts, instead of as wide as the page.
    """

    title: Words
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    limited: bool = False
    fold: Literal["", "open", "closed"] = ""
    compact: bool = False


class Entry(msgspec.Struct, frozen=True):
    """An entry of a report, such as a finding, with its title, its figures and labelled details."""

    title: Words
    figures: tuple[str, ...]
    details: tuple[tuple[str, Words], ...]


class Entries(msgspec.Struct, frozen=True):
    """Numbered entries. Only the first entries are shown. The option --top sets how many entries are shown.

    Attributes:
        title: The title.
        names: The headings of the figures.
        entries: The entries.
        before_number: A text before each number, such as "b" for "b1".
    """

    title: Words
    names: tuple[str, ...]
    entries: tuple[Entry, ...]
    before_number: str = ""


class Code(msgspec.Struct, frozen=True):
    """Lines of source, of a patch or of commands, under a title. `language` is Markdown's name for the language."""

    title: Words
    lines: tuple[str, ...]
    language: str = ""


class Sample(msgspec.Struct, frozen=True):
    """The measured times of one statement, in ascending order, with their median and the confidence interval of the
    median.
    """

    name: str
    about: str
    values: Sequence[float]
    median: float
    low: float
    high: float


class Histograms(msgspec.Struct, frozen=True):
    """Histograms of samples, in ns. The samples of a group share an axis. Only HTML shows histograms."""

    groups: tuple[tuple[Sample, ...], ...]


class Level(msgspec.Struct, frozen=True):
    """One bar of a waterfall.

    Attributes:
        text: The label of the bar.
        size: The length of the bar.
        was: The length of the previous bar.
        takes: The size as text.
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
    """Bars on one scale, each with its difference from the previous bar.

    `names` are the headings of the two figures of each bar.
    """

    title: Words
    caption: Words
    names: tuple[str, str]
    levels: tuple[Level, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Values along a run, each with its bound, on a logarithmic axis.

    If there is not enough space for all values, successive values share a bar. The bar shows the value with the largest
    ratio to its bound. Values of 0 and nan are not drawn.

    Attributes:
        title: The title.
        values: The values, in order.
        bounds: The bound of each value.
        within: The legend for the part of a value up to its bound.
        beyond: The legend for the part of a value that exceeds its bound.
        bound: The legend for the bounds.
        most: The smallest value that is drawn in a separate row at the top. Values of inf are always in this row.
        sections: The parts of the run, each as (index of the part's first value, name of the part).
        mark: A value to mark, as (index of the value, text beside the mark), or None.
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
    """Two amounts over time, as areas on one linear axis from 0. One area stands in front of the other.

    Attributes:
        title: The title.
        front: The amount in front, at equal distances in time.
        behind: The amount behind, which is at least as large; empty if it is not known.
        names: What both are called.
        most: The largest amount, as text.
        ends: The first and the last time, as texts.
        mark: A time to mark, as (share of the time, text beside the mark).
    """

    title: Words
    front: tuple[int, ...]
    behind: tuple[int, ...]
    names: tuple[str, str]
    most: str
    ends: tuple[str, str]
    mark: tuple[float, Words]


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a graph.

    Attributes:
        text: The text in the node.
        below: A second line of text.
        about: A longer text, which is shown if the node is pointed at.
        lane: The number of the colour at the node's side.
        strong: Whether the node is highlighted.
    """

    text: str
    below: str
    about: str
    lane: int = 0
    strong: bool = False


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of a graph, from one node to a later one. `text` is beside it."""

    earlier: int
    later: int
    text: str = ""
    strong: bool = False
    dashed: bool = False


class Graph(msgspec.Struct, frozen=True):
    """A directed acyclic graph. Each edge goes from a node to a later node. Only HTML and SVG show graphs."""

    title: Words
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphLine, ...]


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """A table that shows values as shades. It has one row for each thing, and one column for each time.

    Attributes:
        title: The title.
        rows: The names of the rows.
        columns: The names of the columns.
        values: The shade of each cell from 0 to 1, by row and column.
        marks: A short text in each cell, such as the number of another row, or "".
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
    """A part of a lane, from `start` to `end` in ns. `key` selects the style: "work", "wait" or "transfer"."""

    key: Literal["work", "wait", "transfer"]
    start: int
    end: int
    text: str


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Several lanes on one axis of time, each with its stretches.

    Attributes:
        title: The title.
        about: A sentence about the lanes.
        lanes: The lanes, each as (name, stretches).
    """

    title: str
    about: str
    lanes: tuple[tuple[str, tuple[Stretch, ...]], ...]


class LaneSets(msgspec.Struct, frozen=True, kw_only=True):
    """Several sets of lanes. The reader picks one; formats in which nothing can be picked show the first.

    `legend` has the meaning of each key of a stretch, in the order in which to list the keys.
    """

    title: Words
    sets: tuple[Lanes, ...]
    legend: tuple[tuple[Literal["work", "wait", "transfer"], str], ...]


Block: TypeAlias = (
    Prose | Bullets | Bars | Table | Entries | Code | Histograms | Waterfall | Chart | Area | Graph | HeatMap | LaneSets
)


class Annotation(msgspec.Struct, frozen=True):
    """A message that continuous integration shows at a line of the source.

    `identity` stays the same if the line moves.
    """

    level: Literal["notice", "warning", "error"]
    title: str
    text: str
    file: str | None = None
    line: int | None = None
    identity: str = ""


class Case(msgspec.Struct, frozen=True):
    """A check and its outcome. SARIF has a rule for each check, and JUnit has a test case for each check.

    `key` identifies the check, and is the same in all runs. `at` has a message for each line at which the check failed.
    """

    key: str
    name: str
    state: Literal["held", "exceeded", "unknown"]
    text: str
    at: tuple[Annotation, ...] = ()


def _nothing_more(path: Path) -> Mapping[str, object]:
    return {}


class Page(msgspec.Struct, frozen=True):
    """What the interactive HTML page shows in addition to the data.

    Attributes:
        fields: Fields that the page's script gets in addition to the data.
        draw: A function that returns the packed pictures. It is called only when the page is rendered.
        waterfall: A waterfall above the rest of the page, or None.
        fields_at: A function that gets the path of the page's file and returns more fields for the page's script.
    """

    fields: Mapping[str, object]
    draw: Callable[[], Sequence[bytes]]
    waterfall: Waterfall | None = None
    fields_at: Callable[[Path], Mapping[str, object]] = _nothing_more

    def written_to(self, path: Path) -> Page:
        """Returns the page with the fields that depend on `path`, the file to which the page is written."""
        return msgspec.structs.replace(self, fields={**self.fields, **self.fields_at(path)})


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a report, without a format.

    Attributes:
        title: The name of the command.
        about: Lines that describe the run.
        caveats: Warnings that the reader must know before the summary.
        summary: The conclusion, in one or more sentences.
        blocks: The content below the summary.
        data: The result. Its JSON form is stable.
        annotations: Messages for continuous integration.
        cases: The checks that were made, if any.
        page: What the interactive HTML page shows. If None, the HTML format is a static page that shows the blocks.
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
