"""The formats of a document: by name, by a file's ending, and what makes each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError
from unstall.files import write_atomically

if TYPE_CHECKING:
    from unstall.document.document import Document

FORMATS = ("github", "html", "json", "markdown", "text")
TOP = 10
_ENDINGS: Mapping[str, str] = {
    ".htm": "html",
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".txt": "text",
}


def format_of(path: str | Path, otherwise: str | None = None) -> str:
    """The format that a file's ending asks for, else `otherwise`. Raises UsageError if there is neither."""
    found = _ENDINGS.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        raise UsageError(f"{path}: its ending names no format. Use {', '.join(sorted(_ENDINGS))}, or say --format")
    return found


def render(document: Document, name: str, *, top: int | None = None) -> str:
    """The document in one of FORMATS. `top` limits the rows that formats for reading show, 10 by default."""
    renderer = import_module(f"unstall.document.{'terminal' if name == 'text' else name}")
    text: str = renderer.render(document, top=TOP if top is None else top)
    return text


def write(document: Document, path: str | Path, name: str, *, top: int | None = None) -> None:
    """Write the document to a file. Raises UsageError where that cannot be written."""
    write_atomically(path, render(document, name, top=top).encode(errors="replace"))
