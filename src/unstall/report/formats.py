"""The formats of a report: by name, by a file's ending, and what makes each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.diagnose.explain import Report
    from unstall.result import Result

FORMATS = ("github", "html", "json", "markdown", "text")
_ENDINGS: Mapping[str, str] = {
    ".htm": "html",
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".txt": "text",
}


def format_of(path: str | Path, otherwise: str | None = None) -> str:
    """The format that a file's ending asks for. Raises UsageError where nothing does."""
    found = _ENDINGS.get(Path(path).suffix.lower(), otherwise)
    if found is None:
        raise UsageError(f"{path}: its ending names no format. Use {', '.join(sorted(_ENDINGS))}, or say --format")
    return found


def render(report: Report, name: str, *, top: int | None = None, scrub_paths: bool = False) -> str:
    """The report in one of FORMATS. `top` limits the findings and lines that formats for reading show."""
    if name == "html":
        return _html(report, scrub_paths)
    result = scrubbed(report) if scrub_paths else report.result
    renderer = import_module(f"unstall.report.{'terminal' if name == 'text' else name}")
    text: str = renderer.render(result, top=top)
    return text


def scrubbed(report: Report) -> Result:
    """The result with its paths shortened."""
    from unstall.report.scrub import scrub

    return scrub(report.result)


def _html(report: Report, scrub_paths: bool) -> str:
    from unstall.report import html
    from unstall.report.drawing import draw
    from unstall.report.scrub import files_of, scrub, scrubber

    picture = draw(report.run) if report.run is not None else None
    if not scrub_paths:
        return html.render(report.result, picture)
    files = files_of(report.run.timeline) if report.run is not None else set()
    return html.render(scrub(report.result, files), picture, scrub=scrubber(report.result, files))
