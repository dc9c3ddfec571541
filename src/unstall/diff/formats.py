"""The formats of a comparison: by name, by a file's ending, and what makes each.

A renderer is a module here with `render(result, *, top=None) -> str`; one for HTML would be `html.py`, its name in
`FORMATS` and its ending in `_ENDINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.diff.result import DiffResult

FORMATS = ("json", "markdown", "text")
_ENDINGS: Mapping[str, str] = {".json": "json", ".md": "markdown", ".txt": "text"}
_MODULES = {"text": "terminal"}


def format_of(path: str | Path, otherwise: str | None = None) -> str:
    """The format that a file's ending asks for. Raises UsageError where nothing does."""
    found = _ENDINGS.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        endings = ", ".join(sorted(_ENDINGS))
        raise UsageError(f"{path}: its ending names no format of a comparison. Use {endings}, or say --format")
    return found


def render(result: DiffResult, name: str, *, top: int | None = None) -> str:
    """The comparison in one of FORMATS. `top` limits how many changes of a kind formats for reading show."""
    text: str = import_module(f"unstall.diff.{_MODULES.get(name, name)}").render(result, top=top)
    return text
