"""The formats of a comparison: by name, by a file's ending, and what makes each.

A renderer is a module here with `render(result, *, top=None) -> str`. HTML alone draws the runs as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.diagnose.explain import Report
    from unstall.diff.result import DiffResult

FORMATS = ("html", "json", "markdown", "text")
_ENDINGS: Mapping[str, str] = {".htm": "html", ".html": "html", ".json": "json", ".md": "markdown", ".txt": "text"}
_MODULES = {"text": "terminal"}


def format_of(path: str | Path, otherwise: str | None = None) -> str:
    """The format that a file's ending asks for. Raises UsageError where nothing does."""
    found = _ENDINGS.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        endings = ", ".join(sorted(_ENDINGS))
        raise UsageError(f"{path}: its ending names no format of a comparison. Use {endings}, or say --format")
    return found


def render(
    result: DiffResult,
    name: str,
    *,
    top: int | None = None,
    reports: Sequence[Report] = (),
    scrub_paths: bool = False,
) -> str:
    """The comparison in one of FORMATS. `top` limits how many changes of a kind formats for reading show.

    `reports` are those of A and B, from which HTML draws the runs. With `scrub_paths` paths are shortened, which
    the result's own are expected to be already.
    """
    if name == "html":
        return _html(result, reports, scrub_paths)
    text: str = import_module(f"unstall.diff.{_MODULES.get(name, name)}").render(result, top=top)
    return text


def _html(result: DiffResult, reports: Sequence[Report], scrub_paths: bool) -> str:
    from unstall.diff import html
    from unstall.report.drawing import draw
    from unstall.report.scrub import files_of, scrubber

    runs = [report.run for report in reports if report.run is not None]
    pictures = [draw(run) for run in runs]
    if not scrub_paths:
        return html.render(result, pictures)
    files = {file for run in runs for file in files_of(run.timeline)}
    scrubs = [scrubber(report.result, files) for report in reports]

    def scrub(text: str) -> str:
        for shorten in scrubs:
            text = shorten(text)
        return text

    return html.render(result, pictures, scrub=scrub)
