"""Finds out from the log (what the program asked of its GPU) which bytes each copy to a device
brings, and which calls use the memory that it writes.

Memory is told apart by the number of its allocation, not by its address: the allocator may give the
memory of a freed allocation to the next one, which it would not do if the copy ran on another
stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, Uploads
from unstall.virtual.log import DIRECTION_BITS, CopyFlag, LogCode
from unstall.virtual.races.lanes import lanes_of
from unstall.virtual.races.shared import record_of_use


@dataclass(frozen=True, eq=False, slots=True)
class Calls:
    """For each record of the log, the first and the last call that put its work on a device, as
    rows of the table `Host`; -1 if there is none.
    """

    first: I32
    last: I32


def calls_of(records: int, record: I64, call: I32) -> Calls:
    """Returns, for each record of the log, the first and the last call that put its work on a
    device.

    Args:
        records: How many records the log has.
        record: For each op, the number of the record that led to it.
        call: For each op, the row of the table `Host` that has the call that launched it, or -1.
    """
    known = call >= 0
    most = np.iinfo(np.int32).max
    first, last = np.full(records, most, np.int32), np.full(records, -1, np.int32)
    np.minimum.at(first, record[known], call[known])
    np.maximum.at(last, record[known], call[known])
    return Calls(np.where(first == most, -1, first).astype(np.int32), last)


@dataclass(frozen=True, eq=False, slots=True)
class _Uses:
    """Uses of memory that copies to a device write, one row for each, sorted by allocation, then in
    the order of the log.
    """

    allocation: I64
    position: I64  # in the log
    record: I64  # the number of its record in the whole log; of a graph's node, that of the graph's launch
    stream: I64
    start: I64
    end: I64
    uploads: Bool  # it is the write of an upload
    content: I32


def uploads_table(records: np.ndarray, uses: np.ndarray, numbers: I64, calls: Calls) -> Uploads:
    """Returns the table `Uploads` of a timeline: one row for each copy from the host to a device.

    Args:
        records: The records of the log that use memory or order work, as `RaceLog` keeps them.
        uses: The uses of memory of these records.
        numbers: For each of these records, its number in the whole log.
        calls: For each record of the whole log, the calls that put its work on a device.
    """
    of = _uses(records, uses, numbers)
    mine = np.flatnonzero(of.uploads)
    mine = mine[np.argsort(of.position[mine], kind="stable")]
    mine = mine[calls.first[of.record[mine]] >= 0]
    row_of_use = np.full(len(of.position), -1, np.int64)
    row_of_use[mine] = np.arange(len(mine))
    previous, before, first, last = (np.full(len(mine), -1, np.int32) for _ in range(4))
    alone = np.ones(len(mine), np.bool_)
    begins = np.searchsorted(of.allocation, of.allocation[mine])
    ends = np.searchsorted(of.allocation, of.allocation[mine], side="right")
    for row, (use, begin, end) in enumerate(zip(mine.tolist(), begins.tolist(), ends.tolist(), strict=True)):
        touched = begin + np.flatnonzero((of.start[begin:end] < of.end[use]) & (of.end[begin:end] > of.start[use]))
        at = int(np.searchsorted(touched, use))
        copies = of.uploads[touched]
        earlier, later = touched[:at][::-1], touched[at + 1 :]
        over = np.flatnonzero(copies[at + 1 :])
        later = later[: over[0]] if len(over) else later
        under = np.flatnonzero(copies[:at][::-1])
        reused = earlier[under[0]] if len(under) else -1
        earlier = earlier[: under[0]] if len(under) else earlier
        near = [*([touched[at + 1 + over[0]]] if len(over) else []), *([reused] if len(under) else [])]
        same_bytes = all(of.start[use] == of.start[each] and of.end[use] == of.end[each] for each in near)
        around = np.concatenate((earlier, later, near)).astype(np.int64)
        alone[row] = same_bytes and bool((of.stream[around] == of.stream[use]).all())
        previous[row] = row_of_use[reused] if len(under) else -1
        before[row] = calls.last[of.record[earlier[0]]] if len(earlier) else -1
        if len(later):
            first[row], last[row] = calls.first[of.record[later[0]]], calls.last[of.record[later[-1]]]
    return Uploads(
        call=calls.first[of.record[mine]],
        content=of.content[mine],
        previous=previous,
        used_before=before,
        first_use=first,
        last_use=last,
        alone=alone,
    )


def renumbered(uploads: Uploads, row: I32) -> Uploads:
    """Returns the table after the rows of the table `Host` were numbered anew. Copies whose call is
    gone are left out.

    `row` has the new number of each old row, or -1 if the row is gone. One more -1 stands at its
    end, so that -1 stays -1. A use whose row is gone counts as none.
    """
    kept = row[uploads.call] >= 0
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
    return Uploads(
        call=row[uploads.call[kept]],
        content=uploads.content[kept],
        previous=number[uploads.previous[kept]],
        used_before=row[uploads.used_before[kept]],
        first_use=row[uploads.first_use[kept]],
        last_use=row[uploads.last_use[kept]],
        alone=uploads.alone[kept],
    )


def _uses(records: np.ndarray, uses: np.ndarray, numbers: I64) -> _Uses:
    """Returns the uses of all allocations that copies to a device write. The nodes of a CUDA graph
    use memory when the graph is launched.
    """
    owner = record_of_use(records, uses)
    direction = records["flags"] & DIRECTION_BITS
    upload = (records["code"] == LogCode.COPY) & (direction == CopyFlag.HOST_TO_DEVICE)
    written = upload[owner] & (uses["write"] != 0) & (uses["allocation"] > 0)
    kept = np.flatnonzero(np.isin(uses["allocation"], np.unique(uses["allocation"][written])))
    parts, launcher = [kept], [owner[kept]]
    if (records["code"] == LogCode.CAPTURE_BEGIN).any():
        lanes = lanes_of(records)
        runs = ~lanes.captured[owner[kept]]
        parts, launcher = [kept[runs]], [owner[kept][runs]]
        for graph in lanes.graphs:
            nodes = kept[np.isin(owner[kept], graph.nodes)]
            _, distinct = np.unique(uses[["allocation", "offset", "bytes"]][nodes], return_index=True)
            nodes = nodes[distinct]
            parts.append(np.tile(nodes, len(graph.launches)))
            launcher.append(np.repeat(graph.launches, len(nodes)))
    use, by = np.concatenate(parts), np.concatenate(launcher)
    order = np.lexsort((by, uses["allocation"][use]))
    use, by = use[order], by[order]
    return _Uses(
        allocation=uses["allocation"][use].astype(np.int64),
        position=by.astype(np.int64),
        record=numbers[by].astype(np.int64),
        stream=(records["stream"][by] << 8) | (records["device"][by].astype(np.int64) & 0xFF),
        start=uses["offset"][use].astype(np.int64),
        end=(uses["offset"][use] + uses["bytes"][use]).astype(np.int64),
        uploads=written[use] & (by == owner[use]),
        content=records["content"][by].astype(np.int32),
    )
