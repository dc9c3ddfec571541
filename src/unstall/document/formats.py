"""The formats of a document: their names, file endings and renderers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError
from unstall.files import write_atomically

if TYPE_CHECKING:
    from unstall.document.document import Document

FORMATS = ("github", "html", "json", "markdown", "text")
FORMATS_OF_CASES = (*FORMATS, "junit", "sarif")
"""The formats of a document that has cases."""
FORMATS_OF_GRAPHS = (*FORMATS, "svg")
"""The formats of a document that has a graph."""
TOP = 10
_ENDINGS: Mapping[str, str] = {
    ".htm": "html",
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".sarif": "sarif",
    ".svg": "svg",
    ".txt": "text",
    ".xml": "junit",
}


def endings(formats: Sequence[str] = FORMATS) -> list[str]:
    """Returns the usual endings of file names for some formats. A format without such an ending is left out."""
    return sorted({name: ending for ending, name in _ENDINGS.items() if name in formats}.values())


def format_of(path: str | Path, otherwise: str | None = None, formats: Sequence[str] = FORMATS) -> str:
    """Returns the format of a file, by the ending of its name.

    If the ending belongs to none of `formats`, returns `otherwise`.

    Raises:
        UsageError: The ending belongs to none of `formats`, and `otherwise` is None.
    """
    endings = {ending: name for ending, name in _ENDINGS.items() if name in formats}
    found = endings.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        raise UsageError(f"{path}: its ending names no format. Use {', '.join(sorted(endings))}, or say --format")
    return found


def render(document: Document, name: str, *, top: int | None = None) -> str:
    """Returns a document as text in the format `name`.

    `top` limits the number of rows in formats that people read. If None, the limit is 10.
    """
    renderer = import_module(f"unstall.document.{'terminal' if name == 'text' else name}")
    text: str = renderer.render(document, top=TOP if top is None else top)
    return text


def write(document: Document, path: str | Path, name: str, *, top: int | None = None) -> None:
    """Writes a document to the file `path`, in the format `name`.

    `top` limits the number of rows in formats that people read. If None, the limit is 10.

    Raises:
        UsageError: The file cannot be written.
    """
    if document.page is not None and name == "html":
        import msgspec  # here, since --help needs only the names

        document = msgspec.structs.replace(document, page=document.page.written_to(Path(path)))
    write_atomically(path, render(document, name, top=top).encode(errors="replace"))
