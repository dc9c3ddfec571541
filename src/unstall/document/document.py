"""`Document`: the content that a verb reports, independent of the format.

A report builds a document; a renderer (`terminal`, `markdown`, `github`, `html`, `json`) reads it. Texts are not
escaped for any syntax: each renderer escapes the spans for its own syntax. JSON consists of the document's `data`
alone.
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
    """A stretch of text in one role. If there is little space beside figures, `brief` replaces the text."""

    text: str
    role: Role = ""
    brief: str = ""


Words: TypeAlias = tuple[Span, ...]


def words(*parts: str | Span | Words) -> Words:
    """Returns one line of spans. Empty parts are left out."""
    return tuple(span for part in parts for span in _spans(part) if span.text)


def _spans(part: str | Span | Words) -> Iterator[Span]:
    if isinstance(part, str):
        yield Span(part)
    elif isinstance(part, Span):
        yield part
    else:
        yield from part


class Prose(msgspec.Struct, frozen=True):
    """Lines of text. If `small`, they are a footnote."""

    lines: tuple[Words, ...]
    small: bool = False


class Bullets(msgspec.Struct, frozen=True):
    """A list of sentences under a title."""

    title: Words
    items: tuple[Words, ...]


class Part(msgspec.Struct, frozen=True):
    """A part of a bar. `key` selects its look: "compute", "idle: sync", …"""

    key: str
    label: str
    size: int


class Bar(msgspec.Struct, frozen=True):
    """One stacked bar. Its caption distinguishes it from other bars."""

    parts: tuple[Part, ...]
    caption: str = ""


class Bars(msgspec.Struct, frozen=True):
    """Stacked bars on one scale, with a shared legend: one row per part, with figures under the headings in `names`."""

    title: str
    bars: tuple[Bar, ...]
    names: tuple[str, ...]
    legend: tuple[tuple[Part, tuple[str, ...]], ...]


class Column(msgspec.Struct, frozen=True):
    """A column of figures. An `extra` column is left out if the space is too narrow."""

    name: str
    align: Literal["left", "right"] = "right"
    extra: bool = False


class Row(msgspec.Struct, frozen=True):
    """One row: its text, its figures, and the lines below."""

    text: Words
    figures: tuple[str | Words, ...]
    below: tuple[Words, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """A table. Each row has a text and figures.

    `limited`: only the first `top` rows are shown. `fold`: Markdown and HTML make the table collapsible, closed or open
    at first. `compact`: the table is as wide as its texts, and does not fill the line.
    """

    title: Words
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    limited: bool = False
    fold: Literal["", "open", "closed"] = ""
    compact: bool = False


class Entry(msgspec.Struct, frozen=True):
    """A finding: its title, its figures, and labelled details."""

    title: Words
    figures: tuple[str, ...]
    details: tuple[tuple[str, Words], ...]


class Entries(msgspec.Struct, frozen=True):
    """Numbered entries. Only the first `top` entries are shown. `names` are the headings of the figures.

    `before_number` stands before each number, as in "b1".
    """

    title: Words
    names: tuple[str, ...]
    entries: tuple[Entry, ...]
    before_number: str = ""


class Code(msgspec.Struct, frozen=True):
    """Lines of source or of a patch under a title. `language` is Markdown's name for the language."""

    title: Words
    lines: tuple[str, ...]
    language: str = ""


class Sample(msgspec.Struct, frozen=True):
    """Measured values of one statement in ascending order, and their median with its interval."""

    name: str
    about: str
    values: Sequence[float]
    median: float
    low: float
    high: float


class Histograms(msgspec.Struct, frozen=True):
    """Distributions of samples, in ns. Samples of one group share an axis. Only HTML draws histograms."""

    groups: tuple[tuple[Sample, ...], ...]


class Level(msgspec.Struct, frozen=True):
    """One bar of a waterfall. `was` is the size of the previous bar. `takes` and `gain` are figures."""

    text: Words
    size: int
    was: int
    takes: Span
    gain: str = ""
    below: tuple[Words, ...] = ()


class Waterfall(msgspec.Struct, frozen=True):
    """Bars on one scale, each with its difference from the previous bar. `names` are the headings of the figures."""

    title: Words
    caption: Words
    names: tuple[str, str]
    levels: tuple[Level, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Values along a run, each with its bound, on a logarithmic axis.

    `within`, `beyond` and `bound` are the legend: a value up to its bound, what exceeds it, the bound. If there is no
    space for all values, each stretch of them shows the one that is the largest multiple of its bound. Zeros and nan
    are left empty. Values from `most` on, and inf, are in a row of their own at the top. `sections` are the parts of
    the run: the number of the first value, and a name. `mark` is the number of a value, with words for it.
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


Block: TypeAlias = Prose | Bullets | Bars | Table | Entries | Code | Histograms | Waterfall | Chart


class Annotation(msgspec.Struct, frozen=True):
    """A message that continuous integration shows at a line of the source. `identity` stays the same if the line
    moves."""

    level: Literal["notice", "warning", "error"]
    title: str
    text: str
    file: str | None = None
    line: int | None = None
    identity: str = ""


class Case(msgspec.Struct, frozen=True):
    """Something that was checked, as continuous integration shows it: a rule of SARIF, a test case of JUnit.

    `key` identifies it from run to run. `at` has a message for each line that it failed at.
    """

    key: str
    name: str
    state: Literal["held", "exceeded", "unknown"]
    text: str
    at: tuple[Annotation, ...] = ()


def _nothing_more(path: Path) -> Mapping[str, object]:
    return {}


class Page(msgspec.Struct, frozen=True):
    """Content of the interactive HTML page in addition to the data: more fields, pictures that are drawn on demand, and
    a waterfall above the rest. `fields_at` returns further fields, which depend on the path that the page is written
    to.
    """

    fields: Mapping[str, object]
    draw: Callable[[], Sequence[bytes]]
    waterfall: Waterfall | None = None
    fields_at: Callable[[Path], Mapping[str, object]] = _nothing_more

    def written_to(self, path: Path) -> Page:
        """Returns the page with the fields that depend on `path`, the file that the page is written to."""
        return msgspec.structs.replace(self, fields={**self.fields, **self.fields_at(path)})


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The content that a verb reports.

    `title` names the verb, `about` describes the run in lines, `summary` is the conclusion in one or more sentences,
    and `caveats` must be read before the summary. `cases` are what was checked, if anything was. `data` is the result,
    whose JSON form is stable. Without a `page`, HTML shows the blocks themselves.
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
