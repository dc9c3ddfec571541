"""The comparison as one HTML file that works offline: what changed, and both runs on timelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unstall.diff.result import DiffResult
from unstall.report.html import page_of
from unstall.report.picture import Picture


def render(result: DiffResult, pictures: Sequence[Picture] = (), *, scrub: Callable[[str], str] | None = None) -> str:
    """The whole page; `pictures` are of A and B, and `scrub` is applied to their texts."""
    return page_of(result, pictures, scrub=scrub)
