"""The answer as one HTML file that works offline: the edits as a waterfall, and both runs on timelines."""

from __future__ import annotations

from collections.abc import Sequence

from unstall.report.html import page_of
from unstall.report.picture import Picture
from unstall.report.what_if.wording import conclusion
from unstall.result import WhatIf


def render(result: WhatIf, pictures: Sequence[Picture] = ()) -> str:
    """The whole page; `pictures` are of the run before and after."""
    return page_of(result, pictures, conclusion=conclusion(result))
