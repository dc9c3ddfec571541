"""Finds calls that return only when their copy is done, by their names."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import by_text


def is_synchronous(timeline: Timeline, calls: I64 | I32) -> Bool:
    """Returns a mask of those `calls` (rows of `timeline.host`) that, by their names, return only
    when their copy is done.

    A call with "Async" in its name is never in the mask, although it too waits for a copy from or
    to pageable memory.
    """
    named = by_text(timeline.host.name[calls], lambda index: index >= 0 and "Async" not in timeline.strings[index])
    return named.astype(np.bool_)
