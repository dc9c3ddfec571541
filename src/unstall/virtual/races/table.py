"""Converts the races in a log into the table `Races` of a timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unstall.timeline.columns import I32, Races
from unstall.virtual.races.found import Access, Race


def races_table(races: Sequence[Race], host_row: I32, stream_row: Callable[[int, int], int]) -> Races:
    """Returns the table of races for a timeline.

    Args:
        races: The races in the log.
        host_row: For each record of the log, the row of the table `Host` that has its call, or the
            operator around it; -1 if there is neither. For a captured access with -1, the row of
            the graph's launch is used.
        stream_row: A function that takes the index of a device and the number of a stream, and
            returns the row of the stream in the table `Streams`.
    """

    def row_of(access: Access) -> int:
        row = int(host_row[access.record])
        return row if row >= 0 or access.launch < 0 else int(host_row[access.launch])

    def stream_of(access: Access) -> int:
        return -1 if access.stream is None else stream_row(access.device, access.stream)

    def column(values: Sequence[int], dtype: type[np.integer]) -> np.ndarray:
        return np.array(values, dtype=dtype)

    return Races(
        kind=column([race.kind for race in races], np.int8),
        earlier=column([row_of(race.earlier) for race in races], np.int32),
        later=column([row_of(race.later) for race in races], np.int32),
        earlier_stream=column([stream_of(race.earlier) for race in races], np.int32),
        later_stream=column([stream_of(race.later) for race in races], np.int32),
        bytes=column([race.bytes for race in races], np.int64),
        count=column([race.count for race in races], np.int64),
    )
