"""Finds the uses that can be part of a race. These are uses of memory that several lanes use. Removes all other uses
early.
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
    """The uses of allocations that several lanes use, in the order of the log. The begin and the end of each use cut
    the allocation into segments.
    """

    record: I64
    allocation: I64
    first: I64  # first segment of the use
    last: I64  # one past its last segment
    write: Bool
    size: I64  # by segment: bytes
    offset: I64  # by segment: bytes from the start of its allocation
    segments_of: dict[int, tuple[int, int]]  # by allocation: its first segment and one past the last
    home: dict[int, int]  # by allocation: the lane that it was allocated on


def record_of_use(records: np.ndarray, uses: np.ndarray) -> I64:
    """Returns, for each use of memory, the number of the log record that has the use. Raises ValueError if the records
    and `uses` have different numbers of uses.
    """
    of: I64 = np.repeat(np.arange(len(records), dtype=np.int64), records["uses"])
    if len(of) != len(uses):
        raise ValueError(f"{len(uses):,} uses of memory, where the records say {len(of):,}")
    return of


def shared_uses(
    records: np.ndarray, uses: np.ndarray, owner: I64, lanes: StreamLanes, *, reused: bool = False
) -> SharedUses | None:
    """Returns the uses of memory that several lanes use, or None if there is no such memory. A lane is a stream, or a
    branch of a CUDA graph.

    If `reused` is True, also includes memory that is allocated on one lane and used only on a different lane.
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
    """Returns, for each use of memory, whether the use can be part of a race. If a CPU operator submits work to a
    stream, the operator's own uses cannot be part of a race, because the submitted work has separate uses.
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
    """Returns the (allocation, lane) pairs of all uses. A captured use has one pair for each stream that launches the
    graph.
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
    """Cuts allocations into segments, at the begin and the end of each use.

    `record` has the record of each use, `home` the lane on which an allocation was made. Raises ValueError if a use is
    outside of every allocation.
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
