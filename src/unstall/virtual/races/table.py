"""Converts the races of a log into a table of the timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unstall.timeline.columns import I32, Races
from unstall.virtual.races.found import Access, Race


def races_table(races: Sequence[Race], host_row: I32, stream_row: Callable[[int, int], int]) -> Races:
    """Returns the timeline's table of races.

    Args:
        races: The races of the log.
        host_row: For each log record, an index into the table `Host`. This is the index of the record's call, or of the
            operator that encloses the record. The index is -1 if there is neither a call nor an operator. If the index
            is -1 for a graph node, the table uses the index of the graph's launch.
        stream_row: Returns the index of a stream in the table `Streams`, given (device, stream).
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
