"""The comparison as JSON: schema `unstall.diff/1`, keys sorted, integer nanoseconds."""

from __future__ import annotations

from unstall.diff.result import DiffResult
from unstall.report.json import encode


def render(result: DiffResult, *, top: int | None = None) -> str:
    """All of it: `top` limits what people read, never data."""
    return encode(result)
