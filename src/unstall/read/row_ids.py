"""Finds the host rows that a trace's metadata names. The metadata names a call by the call's correlation id, and an
operator by the operator's external id.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I8, I64, HostKind, Streams


def rows_by_id(kind: I8, correlation: I64, external: I64) -> dict[int, int]:
    """Returns a dict that maps ids of a trace to host rows. The ids are the correlation ids of calls and the external
    ids of operators.

    The arguments are columns of the host events.
    """
    calls = (kind >= HostKind.LAUNCH) & (kind <= HostKind.CALL)
    row_of = {number: row for row, number in _numbered(external, kind == HostKind.OP)}
    row_of.update((number, row) for row, number in _numbered(correlation, calls))
    return row_of


def rows_of_streams(streams: Streams) -> dict[tuple[int, int], int]:
    """Returns a dict from (device, stream) to the row of the stream."""
    pairs = zip(streams.device.tolist(), streams.stream.tolist(), strict=True)
    return {pair: row for row, pair in enumerate(pairs)}


def _numbered(ids: I64, wanted: np.ndarray) -> list[tuple[int, int]]:
    """Returns a list of (row, id) with each row that is wanted and has an id."""
    rows = np.flatnonzero(wanted & (ids >= 0))
    return list(zip(rows.tolist(), ids[rows].tolist(), strict=True))
