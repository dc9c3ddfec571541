"""The static HTML page of a document: whatever a name holds, it stays a name."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest
from report.answers import ANSWER, COMPARED, PLANNED
from report.rendered import document_of
from report.sample import HOSTILE, TYPICAL

from unstall.changes.result import DiffResult
from unstall.document import html
from unstall.document.plain import plain
from unstall.result import Result, WhatIf


class _Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(result: Result | WhatIf | DiffResult) -> _Elements:
    elements = _Elements()
    elements.feed(html.render(msgspec.structs.replace(document_of(result), page=None)))
    return elements


def _named(name: str) -> Result:
    where = msgspec.structs.replace(TYPICAL.findings[0].where, file=f"x{name}", function=f"x{name}", op=f"y{name}")
    finding = msgspec.structs.replace(TYPICAL.findings[0], title=f"x{name}", saw=f"x{name}", where=where)
    line = msgspec.structs.replace(TYPICAL.lines[0], where=where)
    source = msgspec.structs.replace(TYPICAL.source, path=f"x{name}")
    return msgspec.structs.replace(TYPICAL, source=source, findings=(finding,), lines=(line,))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_and_leaves_the_elements_as_they_are(name: str) -> None:
    hostile, tame = _read(_named(name)), _read(_named("tame"))
    assert hostile.elements == tame.elements
    assert plain(f"x{name}") in hostile.text


@pytest.mark.parametrize("result", [PLANNED, ANSWER, COMPARED])
def test_it_fetches_and_runs_nothing(result: Result | WhatIf | DiffResult) -> None:
    elements = _read(result).elements
    assert {tag for tag, _ in elements}.isdisjoint({"script", "link", "img", "iframe", "a", "object"})
    assert not {name for _, attributes in elements for name, _ in attributes} & {"src", "href", "style", "onclick"}
    policy = dict(dict(elements[3][1]))["content"] if elements[3][0] == "meta" else None
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
