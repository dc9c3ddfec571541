"""Finds calls that return only when their copy is done."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import by_text


def is_synchronous(timeline: Timeline, calls: I64 | I32) -> Bool:
    """Returns a mask of the `calls` that return only when their copy is done, judged by the names of the calls.

    `calls` are rows of `Host`.

    A call with `Async` in its name is never selected. But even such a call returns only when its copy is done, if the
    copy is from or to pageable memory.
    """
    named = by_text(timeline.host.name[calls], lambda index: index >= 0 and "Async" not in timeline.strings[index])
    return named.astype(np.bool_)
