"""Finds dependencies between pieces of work on devices.

A piece of work that reads or overwrites bytes depends on the earlier pieces of work that used these bytes. Earlier
means that the program requested it earlier. Each launch of a CUDA graph counts as one piece of work.
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
    """Pairs of records. `bytes` is what `later` reads of what `earlier` wrote; 0 if `later` only overwrites bytes that
    `earlier` used.
    """

    earlier: I64
    later: I64
    bytes: I64

    @classmethod
    def none(cls) -> Needs:
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty)


def needs_of(records: np.ndarray, uses: np.ndarray) -> Needs:
    """Returns the dependencies of a whole log between pieces of work.

    A use depends on the last write of the same bytes before it. A write depends on the reads since then, too.

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
    """Returns, for each launch of a graph, the distinct uses of all its nodes, and the launch as their owner."""
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
    """Returns each pair (earlier, later) once, with the sum of its bytes, sorted by `later`.

    Leaves out pairs in which `earlier` and `later` are equal.
    """
    apart = earlier != later
    earlier, later, size = earlier[apart].astype(np.int64), later[apart].astype(np.int64), size[apart]
    width = int(earlier.max(initial=0)) + 1
    keys, which = distinct(later * width + earlier)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, which, size)
    return Needs(keys % width, keys // width, total)


def dependencies_table(needs: Needs, host_row: I32, operator: I32) -> Dependencies:
    """Returns the timeline's table of dependencies.

    Args:
        needs: The dependencies of the log.
        host_row: For each log record, an index into the table `Host`: that of the record's call, or of the operator
            that encloses the record; -1 if there is neither.
        operator: For each host row, the row of the nearest enclosing operator, or -1.
    """
    lifted = np.append(np.where(operator >= 0, operator, np.arange(len(operator))), -1)
    earlier, later = lifted[host_row[needs.earlier]], lifted[host_row[needs.later]]
    known = (earlier >= 0) & (later >= 0)
    found = merged(earlier[known], later[known], needs.bytes[known])
    return Dependencies(found.earlier.astype(np.int32), found.later.astype(np.int32), found.bytes)
