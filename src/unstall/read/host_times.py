"""How far the host gets without CUPTI, as recordings tell it under "unstall" → the table of their timeline.

Each time is told as nanoseconds since the one before; the first, as recorded, as one of the host's clock.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from unstall.timeline.columns import HostTimes

_MOST = 1_000_000
_MOST_NS = 2**62  # of a clock
_FAR_NS = 2**52  # from the run: as with events
_MOST_LONGER = 4  # no recorder makes a host that much faster
_Times: TypeAlias = Annotated[
    list[Annotated[int, msgspec.Meta(ge=0, lt=_MOST_NS)]], msgspec.Meta(min_length=2, max_length=_MOST)
]


class ToldHostTimes(Struct, frozen=True):
    """What stands under "host_only"."""

    recorded_ns: _Times
    alone_ns: _Times


class TellsHostTimes(Struct):
    """What stands under "unstall"."""

    host_only: ToldHostTimes | None = None


def host_times_of(told: ToldHostTimes | None, zero_ns: int) -> HostTimes:
    """Of a timeline whose time 0 is `zero_ns` on the host's clock. What does not fit together is none."""
    if told is None or len(told.recorded_ns) != len(told.alone_ns):
        return HostTimes.none()
    first, recorded_ns, alone_ns = told.recorded_ns[0] - zero_ns, sum(told.recorded_ns[1:]), sum(told.alone_ns[1:])
    if max(abs(first), first + recorded_ns) >= _FAR_NS or alone_ns > _MOST_LONGER * recorded_ns:
        return HostTimes.none()
    recorded, alone = (np.cumsum([0, *times[1:]], dtype=np.int64) for times in (told.recorded_ns, told.alone_ns))
    return HostTimes(first + recorded, alone)
