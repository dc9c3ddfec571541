"""Finds the forward operator of each backward operator: by recorded flow arrows, otherwise by sequence number."""

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
    """Returns, for each host row that computes a gradient, the row of the forward operator. Returns -1 for other rows.

    Autograd gives a forward operator and the backward evaluation of its graph node the same sequence number. If several
    forward operators have the same number, the node was created by the operator that starts last, because the creation
    of a node increments the number.
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
    """Sets `forward` of each row in `wanted` to the row in `makers` that has the same sequence number.

    If several rows in `makers` have this number, the row that starts last is used. If this row starts after the wanted
    row, `forward` of the wanted row is not set.
    """
    if len(makers) and len(wanted):
        makers = makers[np.lexsort((start[makers], sequence[makers]))]
        last = np.searchsorted(sequence[makers], sequence[wanted], side="right") - 1
        found = makers[np.maximum(last, 0)]
        same = (last >= 0) & (sequence[found] == sequence[wanted]) & (start[found] <= start[wanted])
        forward[wanted[same]] = found[same]


def _follow_arrows(events: Events, forward: I32, thread: I32, threads: Threads, start: I64, ops: I64) -> None:
    """Sets `forward` of backward operators from the trace's flow arrows, which lead from forward to backward operators.

    A flow arrow names an operator by its thread and its start time.
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
    """Returns, for each arrow, the index of the last row with exactly this thread and start time, or -1.

    `thread` and `start` describe the rows, sorted by (thread, start). `arrow_thread` and `time` describe the arrows.
    """
    found = np.full(len(time), -1, dtype=np.int64)
    for number, mine in groups(arrow_thread):
        low, high = np.searchsorted(thread, (number, number + 1))
        at = low + np.searchsorted(start[low:high], time[mine], side="right") - 1
        exact = (at >= low) & (start[np.maximum(at, 0)] == time[mine])
        found[mine[exact]] = at[exact]
    return found
