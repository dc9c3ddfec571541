"""Results in each format, by way of their documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unstall.changes.result import DiffResult
from unstall.document import github, html, json, markdown, terminal
from unstall.document.document import Document
from unstall.report import diff, explain, what_if
from unstall.report.payload import pack_picture
from unstall.report.picture import Picture
from unstall.result import Result, WhatIf


def document_of(
    result: Result | WhatIf | DiffResult, pictures: Sequence[Picture] = (), scrub: Callable[[str], str] | None = None
) -> Document:
    """The document of any verb's result."""

    def draw() -> Sequence[bytes]:
        return [pack_picture(picture, scrub) for picture in pictures]

    if isinstance(result, WhatIf):
        return what_if.document(result, draw)
    return diff.document(result, draw) if isinstance(result, DiffResult) else explain.document(result, draw)


def as_text(result: Result | WhatIf | DiffResult, *, top: int = 10, width: int = 80) -> str:
    return terminal.render(document_of(result), top=top, width=width)


def as_markdown(result: Result | WhatIf | DiffResult, *, top: int = 10) -> str:
    return markdown.render(document_of(result), top=top)


def as_github(result: Result, *, top: int = 10) -> str:
    return github.render(document_of(result), top=top)


def as_json(result: Result) -> str:
    return json.render(document_of(result))


def as_html(result: Result | WhatIf | DiffResult, *pictures: Picture, scrub: Callable[[str], str] | None = None) -> str:
    return html.render(document_of(result, pictures, scrub))
