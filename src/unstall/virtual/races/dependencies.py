"""Finds out which work on devices needs which other work.

Work that reads or overwrites bytes depends on the work that the program asked for before and that
used these bytes. Each launch of a CUDA graph counts as one piece of work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, Dependencies
from unstall.timeline.grouping import distinct
from unstall.virtual.races.lanes import WORK, StreamLanes, lanes_of
from unstall.virtual.races.shared import in_segments, record_of_use

_MOST_PARTS = 20_000_000  # uses of segments; a log with more has no dependencies


@dataclass(frozen=True, eq=False, slots=True)
class Needs:
    """Dependencies between pieces of work on devices, one row for each pair.

    Attributes:
        earlier: The number of the log's record that asked for the earlier work.
        later: The number of the log's record that asked for the work that depends on it.
        bytes: How many bytes the later work reads that the earlier work wrote; 0 if it only
            overwrites what the earlier work used.
    """

    earlier: I64
    later: I64
    bytes: I64

    @classmethod
    def none(cls) -> Needs:
        """Returns a table without rows."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty)


def needs_of(records: np.ndarray, uses: np.ndarray) -> Needs:
    """Returns the dependencies between all pieces of work in a log.

    A use of bytes depends on the last write of them before it. A write also depends on the reads
    since that write. Returns a table without rows if the log has too many uses of memory.

    Args:
        records: The records of the log, with dtype `log.RECORD`.
        uses: The uses of memory in the log, with dtype `log.USE`.
    """
    owner = record_of_use(records, uses)
    works = (uses["bytes"] > 0) & (uses["allocation"] != 0) & np.isin(records["code"][owner], WORK)
    if not works.any():
        return Needs.none()
    lanes = lanes_of(records)
    direct = works & ~lanes.captured[owner]
    parts = [(uses[direct], owner[direct]), *_of_graphs(uses, owner, works, lanes)]
    uses, actor = np.concatenate([part for part, _ in parts]), np.concatenate([part for _, part in parts])
    if not len(uses):
        return Needs.none()
    segments = in_segments(uses, actor, {})
    count = segments.last - segments.first
    if int(count.sum()) > _MOST_PARTS:
        return Needs.none()
    use = np.repeat(np.arange(len(uses)), count)
    segment = np.arange(len(use)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(segments.first, count)
    return _between(segment, actor[use], segments.write[use], segments.size[segment], lanes.position)


def _of_graphs(uses: np.ndarray, owner: I64, works: Bool, lanes: StreamLanes) -> list[tuple[np.ndarray, I64]]:
    """Returns, for each launch of a CUDA graph, `(uses, owner)`: the distinct uses of memory of all
    nodes, and the launch as the record that makes them.
    """
    found = []
    for graph in lanes.graphs:
        own = np.unique(uses[works & np.isin(owner, graph.nodes)])
        found += [(own, np.full(len(own), launch, np.int64)) for launch in graph.launches.tolist()]
    return found


def _between(segment: I64, actor: I64, write: Bool, size: I64, position: I64) -> Needs:
    order = np.lexsort((write, position[actor], segment))
    segment, actor, write, size = segment[order], actor[order], write[order], size[order]
    rows = np.arange(len(segment))
    begin = np.maximum.accumulate(np.where(np.append(True, segment[1:] != segment[:-1]), rows, 0))
    writer = np.append(-1, np.maximum.accumulate(np.where(write, rows, -1))[:-1])
    after_write = writer >= begin
    # Mirrored: the next write of the segment after each row.
    end = len(rows) - 1 - _mirrored_begin(segment)
    coming = np.append(np.minimum.accumulate(np.where(write, rows, len(rows))[::-1])[::-1][1:], len(rows))
    before_write = ~write & (coming <= end)
    earlier = np.concatenate((actor[writer[after_write]], actor[before_write]))
    later = np.concatenate((actor[after_write], actor[np.minimum(coming, len(rows) - 1)[before_write]]))
    read = np.concatenate((np.where(write, 0, size)[after_write], np.zeros(int(before_write.sum()), np.int64)))
    return merged(earlier, later, read)


def _mirrored_begin(segment: I64) -> I64:
    rows = np.arange(len(segment))
    mirrored = segment[::-1]
    first = np.maximum.accumulate(np.where(np.append(True, mirrored[1:] != mirrored[:-1]), rows, 0))
    begins: I64 = first[::-1]
    return begins


def merged(earlier: I64 | I32, later: I64 | I32, size: I64) -> Needs:
    """Returns each pair of `earlier` and `later` once, with the sum of its bytes, sorted by
    `later`. A pair of equal numbers is left out.
    """
    apart = earlier != later
    earlier, later, size = earlier[apart].astype(np.int64), later[apart].astype(np.int64), size[apart]
    width = int(earlier.max(initial=0)) + 1
    keys, which = distinct(later * width + earlier)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, which, size)
    return Needs(keys % width, keys // width, total)


def dependencies_table(needs: Needs, host_row: I32, operator: I32) -> Dependencies:
    """Returns the table of dependencies for a timeline.

    Args:
        needs: The dependencies between records of the log.
        host_row: For each record, the row of the table `Host` that has its call, or the operator
            around it; -1 if there is neither.
        operator: For each row of the table `Host`, the row of the nearest operator around it, or
            -1.
    """
    lifted = np.append(np.where(operator >= 0, operator, np.arange(len(operator))), -1)
    earlier, later = lifted[host_row[needs.earlier]], lifted[host_row[needs.later]]
    known = (earlier >= 0) & (later >= 0)
    found = merged(earlier[known], later[known], needs.bytes[known])
    return Dependencies(found.earlier.astype(np.int32), found.later.astype(np.int32), found.bytes)
