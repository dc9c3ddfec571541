"""Links from the HTML page to source files in the user's editor.

The files exist only on the machine on which the page was written. So the page shows the links only
if it is opened at the path where it was written. Absolute paths do not belong in a page that may be
given to others. So the page contains only a digest of its own path, and the path of each file
relative to the page's folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from unstall.document.document import Document
from unstall.errors import UsageError

SETTING = "UNSTALL_EDITOR"
"""The environment variable that names the editor. If it is not set, the first entry of `EDITORS` is used."""
NONE = "none"
"""The value of the environment variable for a page without links."""


class Editor(NamedTuple):
    """An editor, and the form of the URL that opens a source line in it.

    Attributes:
        name: The name that people read.
        address: The URL. `{path}` stands in it for the file's absolute path without the first
            slash, `{line}` for the line number.
    """

    name: str
    address: str


EDITORS: Mapping[str, Editor] = {
    "vscode": Editor("VS Code", "vscode://file/{path}:{line}"),
    "vscode-insiders": Editor("VS Code Insiders", "vscode-insiders://file/{path}:{line}"),
    "vscodium": Editor("VSCodium", "vscodium://file/{path}:{line}"),
    "cursor": Editor("Cursor", "cursor://file/{path}:{line}"),
    "windsurf": Editor("Windsurf", "windsurf://file/{path}:{line}"),
    "zed": Editor("Zed", "zed://file/{path}:{line}"),
    "pycharm": Editor("PyCharm", "pycharm://open?file=/{path}&line={line}"),
}


def chosen() -> Editor | None:
    """Returns the editor that the environment variable UNSTALL_EDITOR names, or None if its value
    is "none".

    If the variable is not set, returns the first editor of `EDITORS`.

    Raises:
        UsageError: The value is neither "none" nor a key of `EDITORS`.
    """
    name = os.environ.get(SETTING) or next(iter(EDITORS))
    if name != NONE and name not in EDITORS:
        raise UsageError(f"{SETTING} is {name!r}: make it one of {', '.join([*EDITORS, NONE])}")
    return EDITORS.get(name)


def with_links(document: Document, files: Callable[[], Iterable[str]]) -> Document:
    """Returns a copy of `document` whose HTML page links to source files. A document without a page
    is returned as it is.

    `files` is called when the page is written. It returns the paths of the run's source files. Only
    files below the current folder are linked. A page that is written outside of the current folder
    has no links.
    """
    page = document.page
    if page is None:
        return document
    return msgspec.structs.replace(
        document, page=msgspec.structs.replace(page, fields_at=lambda path: _fields(path, files()))
    )


def _fields(page: Path, files: Iterable[str]) -> Mapping[str, object]:
    from unstall.patches.source import path_below  # here, since only pages need it

    editor = chosen()
    if editor is None:
        return {}
    page, folder = page.resolve(), Path().resolve()
    if not page.is_relative_to(folder):  # a path from there to a file would spell this folder's own path
        return {}
    paths = {
        file: Path(os.path.relpath(found, page.parent)).as_posix()
        for file in sorted(set(files))
        if (found := path_below(file, folder))
    }
    return {"editor": {**editor._asdict(), "page": digest(page), "paths": paths}} if paths else {}


def digest(page: Path) -> int:
    """Returns the 32-bit FNV-1a digest of the path `page`.

    `web/src/editor.ts` computes the same digest from the address at which the page is opened.
    """
    value = 0x811C9DC5
    for byte in f"/{page.as_posix().lstrip('/')}".encode(errors="replace"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value
