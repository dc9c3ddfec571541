"""The answer as JSON: schema `unstall.whatif/1`, keys sorted, integer nanoseconds."""

from __future__ import annotations

from unstall.report.json import encode
from unstall.result import WhatIf


def render(result: WhatIf) -> str:
    """All of the answer."""
    return encode(result)
