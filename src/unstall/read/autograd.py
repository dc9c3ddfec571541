"""Finds the forward operator of each backward operator. The trace's flow arrows name it; without
arrows, it is found by autograd's sequence numbers.
"""

from __future__ import annotations

import numpy as np

from unstall.read.events import Events
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I8, I32, I64, HostKind, Threads
from unstall.timeline.grouping import groups


def forward_operators(
    events: Events,
    rows: I64,
    kind: I8,
    thread: I32,
    threads: Threads,
    start: I64,
    parent: I32,
) -> I32:
    """Returns, for each row of `timeline.host` that is a backward operator, the row of the forward
    operator whose gradient it computes. Returns -1 for all other rows.

    If the trace has arrows from forward to backward operators, the arrows tell this. If it has
    none, autograd's sequence numbers tell it: a backward operator has the same number as its
    forward operator. Several forward operators may have the same number, because only one that
    makes a node of autograd's graph increases it. The one that starts last is then the one that
    made the node.

    Args:
        events: The events of the trace file.
        rows: The row in `events` of each row of `timeline.host`.
        kind: The HostKind of each row of `timeline.host`.
        thread: The thread of each row, as a row of `threads`.
        threads: The threads of the timeline.
        start: The start of each row, in ns.
        parent: The row that encloses each row, or -1.
    """
    forward = np.full(len(rows), -1, dtype=np.int32)
    is_op = kind == HostKind.OP
    sequence = events.sequence[rows]
    backward = is_op & (sequence >= 0) & (events.forward_thread[rows] > 0)
    maker = is_op & (sequence >= 0) & (events.forward_thread[rows] <= 0)
    makers = np.flatnonzero(maker)
    wanted = np.flatnonzero(backward)
    _follow_arrows(events, forward, thread, threads, start, np.flatnonzero(is_op))
    wanted = wanted[forward[wanted] < 0]
    link_by_sequence(forward, sequence, makers, wanted, start)
    node = nearest(parent, forward >= 0)
    return np.where(node >= 0, forward[np.maximum(node, 0)], -1).astype(np.int32)


def link_by_sequence(forward: I32, sequence: I64, makers: I64, wanted: I64, start: I64) -> None:
    """Sets `forward` of each backward operator in `wanted` to the forward operator in `makers` that
    has the same sequence number.

    If several rows in `makers` have this number, the row that starts last is taken. If this row
    starts after the backward operator, `forward` of the backward operator is not changed.

    Args:
        forward: For each row of `timeline.host`, the row of its forward operator, or -1. This
            function writes to it.
        sequence: The sequence number of each row.
        makers: The rows that may be forward operators.
        wanted: The rows of the backward operators.
        start: The start of each row, in ns.
    """
    if len(makers) and len(wanted):
        makers = makers[np.lexsort((start[makers], sequence[makers]))]
        last = np.searchsorted(sequence[makers], sequence[wanted], side="right") - 1
        found = makers[np.maximum(last, 0)]
        same = (last >= 0) & (sequence[found] == sequence[wanted]) & (start[found] <= start[wanted])
        forward[wanted[same]] = found[same]


def _follow_arrows(events: Events, forward: I32, thread: I32, threads: Threads, start: I64, ops: I64) -> None:
    """Sets `forward` of backward operators from the trace's flow arrows, which lead from forward to
    backward operators. A flow arrow names an operator by its thread and its start time.
    """
    if not (len(events.flow_id) and len(ops)):
        return
    number = np.full(len(events.strings) + 1, -1, dtype=np.int32)
    number[threads.thread] = np.arange(len(threads))
    ends: list[tuple[I64, I64]] = []
    for side in (0, 1):
        arrows = np.flatnonzero(events.flow_is_end == side)
        arrow_thread = number[events.flow_thread[arrows]]
        # Rows are sorted by thread, then start: of equal rows the last is the innermost.
        place = _last_at(thread[ops], start[ops], arrow_thread, events.flow_time[arrows])
        known = place >= 0
        ends.append((events.flow_id[arrows][known], ops[place[known]]))
    (begun, makers), (ended, nodes) = ends
    order = np.argsort(begun, kind="stable")
    begun, makers = begun[order], makers[order]
    if not len(begun):
        return
    at = np.minimum(np.searchsorted(begun, ended), len(begun) - 1)
    linked = (begun[at] == ended) & (makers[at] != nodes)
    forward[nodes[linked]] = makers[at[linked]]


def _last_at(thread: I32, start: I64, arrow_thread: I32, time: I64) -> I64:
    """Returns, for each flow arrow, the index of the last row with exactly the arrow's thread and
    time, or -1.

    Args:
        thread: The thread of each row. Rows are sorted by (thread, start).
        start: The start of each row.
        arrow_thread: The thread of each arrow.
        time: The time of each arrow.
    """
    found = np.full(len(time), -1, dtype=np.int64)
    for number, mine in groups(arrow_thread):
        low, high = np.searchsorted(thread, (number, number + 1))
        at = low + np.searchsorted(start[low:high], time[mine], side="right") - 1
        exact = (at >= low) & (start[np.maximum(at, 0)] == time[mine])
        found[mine[exact]] = at[exact]
    return found
