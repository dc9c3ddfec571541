"""The formats of an answer: by name, and by a file's ending."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.diagnose.run import Run
    from unstall.result import WhatIf

FORMATS = ("html", "json", "markdown", "text")
_ENDINGS = {".htm": "html", ".html": "html", ".json": "json", ".md": "markdown", ".txt": "text"}


def format_of(path: str | Path, otherwise: str | None = None) -> str:
    """The format that a file's ending asks for. Raises UsageError where nothing does."""
    found = _ENDINGS.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        raise UsageError(f"{path}: its ending names no format. Use {', '.join(sorted(_ENDINGS))}, or say --format")
    return found


def render(result: WhatIf, name: str, *, runs: Sequence[Run] = ()) -> str:
    """The answer in one of FORMATS. `runs`, before and after, are what HTML draws."""
    if name == "html":
        return _html(result, runs)
    renderer = import_module(f"unstall.report.what_if.{'terminal' if name == 'text' else name}")
    text: str = renderer.render(result)
    return text


def _html(result: WhatIf, runs: Sequence[Run]) -> str:
    from unstall.report.drawing import draw
    from unstall.report.what_if import html

    return html.render(result, [draw(run) for run in runs])
