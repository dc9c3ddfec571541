"""The comparison as JSON: schema `unstall.diff/1`, keys sorted, integer nanoseconds."""

from __future__ import annotations

import msgspec

from unstall.diff.result import DiffResult
from unstall.diff.scrub import map_texts
from unstall.report.json import _encodable, _visible


def render(result: DiffResult, *, top: int | None = None) -> str:
    """All of it: `top` limits what people read, never data."""
    try:
        data = msgspec.json.encode(result, order="sorted")
    except UnicodeEncodeError:  # a lone surrogate: file names may hold any bytes
        data = msgspec.json.encode(map_texts(result, _encodable), order="sorted")
    text = msgspec.json.format(data, indent=1).decode() + "\n"
    return text if text.isascii() else "".join(map(_visible, text))
