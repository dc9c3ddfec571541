"""Finds the uses of memory that can be part of a race, which are those of memory that several lanes
use, so that all others need not be looked at. A lane is a stream, or a branch of a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct
from unstall.virtual.log import LogCode
from unstall.virtual.races.lanes import WORK, StreamLanes


@dataclass(frozen=True, eq=False, slots=True)
class SharedUses:
    """Uses of allocations that several lanes use, one row for each, in the order of the log. A lane
    is a stream, or a branch of a CUDA graph.

    Each use cuts its allocation where it begins and where it ends. The parts between two cuts are
    *segments*.

    Attributes:
        record: The number of the record that uses the memory.
        allocation: The number of the allocation.
        first: The number of the first segment that it uses.
        last: One more than the number of the last segment that it uses.
        write: Whether it writes.
        size: For each segment, its size in bytes.
        offset: For each segment, its distance in bytes from the start of the allocation.
        segments_of: For each allocation, the number of its first segment, and one more than that of
            its last.
        home: For each allocation, the lane on which it was allocated, or -1.
    """

    record: I64
    allocation: I64
    first: I64
    last: I64
    write: Bool
    size: I64
    offset: I64
    segments_of: dict[int, tuple[int, int]]
    home: dict[int, int]


def record_of_use(records: np.ndarray, uses: np.ndarray) -> I64:
    """Returns, for each use of memory, the number of the record that makes it.

    Raises:
        ValueError: The records have more or fewer uses than there are in `uses`.
    """
    of: I64 = np.repeat(np.arange(len(records), dtype=np.int64), records["uses"])
    if len(of) != len(uses):
        raise ValueError(f"{len(uses):,} uses of memory, where the records say {len(of):,}")
    return of


def shared_uses(
    records: np.ndarray, uses: np.ndarray, owner: I64, lanes: StreamLanes, *, reused: bool = False
) -> SharedUses | None:
    """Returns the uses of memory that several lanes use and at least one writes; None if there are
    none. A lane is a stream, or a branch of a CUDA graph.

    Args:
        records: The records of the log.
        uses: All uses of memory in the log.
        owner: For each use, the number of its record.
        lanes: The lane and the position of each record.
        reused: Whether to include memory that is allocated on one lane and used only on another.
    """
    # Memory outside allocations is pageable, so only the host uses it.
    counts = (uses["bytes"] > 0) & (uses["allocation"] != 0) & _really_used(records, owner)
    if not counts.any():
        return None
    lane = lanes.of[owner]
    if not lanes.graphs and not reused and len(distinct(lane[counts])[0]) < 2:
        return None
    allocation, which = distinct(uses["allocation"])
    seen_which, seen_lane = _seen(which, lane, counts, owner, lanes)
    some_lane = np.full(len(allocation), -1, dtype=np.int32)
    some_lane[seen_which] = seen_lane
    shared = np.zeros(len(allocation), dtype=np.bool_)
    shared[seen_which[some_lane[seen_which] != seen_lane]] = True
    written = np.zeros(len(allocation), dtype=np.bool_)
    written[which[uses["write"] != 0]] = True
    shared &= written
    home = np.full(len(allocation), -1, dtype=np.int32)
    allocating = np.flatnonzero(records["code"] == LogCode.MALLOC)
    at = np.minimum(np.searchsorted(allocation, records["a"][allocating]), len(allocation) - 1)
    known = allocation[at] == records["a"][allocating]
    home[at[known]] = lanes.of[allocating[known]]
    if reused:
        shared[seen_which[(home[seen_which] >= 0) & (home[seen_which] != seen_lane)]] = True
    rows = np.flatnonzero(counts & shared[which])
    if not len(rows):
        return None
    return in_segments(uses[rows], owner[rows], {int(allocation[i]): int(home[i]) for i in np.flatnonzero(shared)})


def _really_used(records: np.ndarray, owner: I64) -> Bool:
    """Returns, for each use of memory, whether it can be part of a race. If an operator of the host
    puts work on a stream, the operator's own uses cannot: the work has uses of its own.
    """
    code = records["code"]
    of_host = code[owner] == LogCode.OP_BEGIN
    used: Bool = np.isin(code[owner], (*WORK, LogCode.OP_END)) | of_host
    if not of_host.any():
        return used
    marks = np.flatnonzero(code <= LogCode.OP_END)
    change = np.where(code[marks] == LogCode.OP_BEGIN, 1, -1)
    works = np.flatnonzero(np.isin(code, WORK))
    for thread in np.unique(records["thread"][owner[of_host]]).tolist():
        mine = records["thread"][marks] == thread
        mark, step = marks[mine], change[mine]
        depth = np.cumsum(step) - (step > 0)
        order = np.lexsort((mark, depth))  # within one depth: begin, end, begin, …
        begin, end = mark[order][:-1], mark[order][1:]
        pair = (code[begin] == LogCode.OP_BEGIN) & (code[end] == LogCode.OP_END)
        begin, end = begin[pair], end[pair]
        own_works = works[records["thread"][works] == thread]
        busy = np.searchsorted(own_works, end) > np.searchsorted(own_works, begin)
        used[np.isin(owner, begin[busy])] = False
    return used


def _seen(which: I64, lane: I32, counts: Bool, owner: I64, lanes: StreamLanes) -> tuple[I64, I32]:
    """Returns `(allocations, lanes)`, with one pair for each use of memory. A use that was captured
    in a CUDA graph has one pair for each stream that launches the graph.
    """
    direct = counts & ~lanes.captured[owner]
    whiches, found = [which[direct]], [lane[direct]]
    for graph in lanes.graphs:
        rows = np.flatnonzero(counts & np.isin(owner, graph.nodes))
        own = graph.lanes[np.searchsorted(graph.nodes, owner[rows])]
        for launching in np.unique(lanes.of[graph.launches]).tolist():
            whiches.append(which[rows])
            found.append(np.where(own < 0, launching, own).astype(np.int32))
    return np.concatenate(whiches), np.concatenate(found)


def in_segments(uses: np.ndarray, record: I64, home: dict[int, int]) -> SharedUses:
    """Cuts allocations where their uses begin and end. The parts between two cuts are segments.

    Args:
        uses: The uses.
        record: For each use, the number of its record.
        home: For each allocation, the lane (the stream, or the branch of a CUDA graph) on which it
            was allocated, or -1.

    Raises:
        ValueError: A use lies outside of any allocation.
    """
    allocation, which = distinct(uses["allocation"])
    start, end = uses["offset"], uses["offset"] + uses["bytes"]
    bits = int(end.max()).bit_length()
    if start.min() < 0 or bits + len(allocation).bit_length() > 62:
        raise ValueError("the log has uses of memory outside of any device's")
    keys = which << bits
    cuts = np.unique(np.concatenate([keys | start, keys | end]))
    own = cuts >> bits
    size = np.where(np.append(own[1:] == own[:-1], False), np.append(np.diff(cuts), 0), 0)
    first, past = (
        np.searchsorted(own, np.arange(len(allocation))),
        np.searchsorted(own, np.arange(len(allocation)), "right"),
    )
    return SharedUses(
        record=record,
        allocation=uses["allocation"],
        first=np.searchsorted(cuts, keys | start),
        last=np.searchsorted(cuts, keys | end),
        write=uses["write"] != 0,
        size=size,
        offset=cuts & ((1 << bits) - 1),
        segments_of={int(a): (int(i), int(j) - 1) for a, i, j in zip(allocation, first, past, strict=True)},
        home=home,
    )
