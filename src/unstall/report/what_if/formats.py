"""The formats of an answer: by name, and by a file's ending."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.result import WhatIf

FORMATS = ("json", "markdown", "text")
_ENDINGS = {".json": "json", ".md": "markdown", ".txt": "text"}


def format_of(path: str | Path, otherwise: str | None = None) -> str:
    """The format that a file's ending asks for. Raises UsageError where nothing does."""
    found = _ENDINGS.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        raise UsageError(f"{path}: its ending names no format. Use {', '.join(sorted(_ENDINGS))}, or say --format")
    return found


def render(result: WhatIf, name: str) -> str:
    """The answer in one of FORMATS."""
    renderer = import_module(f"unstall.report.what_if.{'terminal' if name == 'text' else name}")
    text: str = renderer.render(result)
    return text
