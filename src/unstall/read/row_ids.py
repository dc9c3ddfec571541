"""Finds the rows of `timeline.host` that a trace's metadata (the JSON members beside its list of
events) names. The metadata names a call by the call's correlation id, and an operator by the
operator's external id.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I8, I64, HostKind, Streams


def rows_by_id(kind: I8, correlation: I64, external: I64) -> dict[int, int]:
    """Returns a dict from ids to rows of `timeline.host`. The ids are the correlation ids of calls
    and the external ids of operators.

    Args:
        kind: The HostKind of each row.
        correlation: The correlation id of each row, or -1.
        external: The external id of each row, or -1.
    """
    calls = (kind >= HostKind.LAUNCH) & (kind <= HostKind.CALL)
    row_of = {number: row for row, number in _numbered(external, kind == HostKind.OP)}
    row_of.update((number, row) for row, number in _numbered(correlation, calls))
    return row_of


def rows_of_streams(streams: Streams) -> dict[tuple[int, int], int]:
    """Returns a dict from (device, stream), the numbers of a device and of one of its streams, to
    the stream's row in `streams`.
    """
    pairs = zip(streams.device.tolist(), streams.stream.tolist(), strict=True)
    return {pair: row for row, pair in enumerate(pairs)}


def _numbered(ids: I64, wanted: np.ndarray) -> list[tuple[int, int]]:
    """Returns a list of pairs (row, id), for each row that is wanted and has an id."""
    rows = np.flatnonzero(wanted & (ids >= 0))
    return list(zip(rows.tolist(), ids[rows].tolist(), strict=True))
