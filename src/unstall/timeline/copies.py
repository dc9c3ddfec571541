"""Which calls return only when their copy is done."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import by_text


def is_synchronous(timeline: Timeline, calls: I64 | I32) -> Bool:
    """Returns which of these host rows are calls whose names say that they return only when their copy is done.

    A call with `Async` in its name is not among them. It may return only then, too, if it has to stage pageable memory.
    """
    named = by_text(timeline.host.name[calls], lambda index: index >= 0 and "Async" not in timeline.strings[index])
    return named.astype(np.bool_)
