"""Makes the instructions of waits: those of the host for the device, and those of streams for
events.

Each instruction says which work is awaited, and how long after the end of this work the wait ends.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from unstall.replay.branches import by_stream
from unstall.replay.delays import learn
from unstall.replay.device import Queued
from unstall.replay.order import Order
from unstall.replay.program import Code
from unstall.replay.unordered import InstructionRows, rows_of
from unstall.timeline.columns import I32, I64, Timeline, WaitKind
from unstall.timeline.grouping import groups, unique

SYNC_NS = 3_000
"""Length in ns of a host's call that waits, if the awaited work is already done (H200, CUDA 13)."""
RETURN_NS = 6_000
"""Time in ns from the end of the awaited work to the return of the host's call that waits (H200, CUDA 13)."""

_PROMPT_NS = 50_000  # from the end of the awaited work to the return
_WORTH_NS = 20_000  # shorter waits are not worth explaining
_TRIES = 8
_LONG_AGO = np.iinfo(np.int64).min // 2


def waits(timeline: Timeline, queue: Queued, order: Order) -> list[InstructionRows]:
    """Returns the instructions, for the program of a run, of the host's waits and of streams'
    waits, and of the event records that these waits need.

    Args:
        timeline: The run.
        queue: The device ops, in launch order.
        order: For each op, the op of another stream for which it waited, as inferred.
    """
    host, known = timeline.host, timeline.waits
    record = np.maximum(known.record, 0)
    calls = known.host.astype(np.int64)
    start, end = host.start[calls], host.end[calls]
    by_event = (
        ((known.kind == WaitKind.EVENT) | (known.kind == WaitKind.STREAM_EVENT))
        & (known.record >= 0)
        & (known.on_stream >= 0)
    )
    of_stream = (known.kind == WaitKind.STREAM) & (known.stream >= 0)
    done = np.full(len(known), _LONG_AGO, dtype=np.int64)
    holds = _holds(timeline, queue)
    done[by_event] = _done_before(holds, queue, known.on_stream[by_event], host.start[record[by_event]])
    done[of_stream] = _done_before(holds, queue, known.stream[of_stream], start[of_stream])
    blocking = known.kind != WaitKind.STREAM_EVENT
    everything = blocking & ~by_event & ~of_stream
    done[everything], of_device = drained(timeline, queue, start[everything], end[everything])

    length = end - start
    belied = blocking & (done > end + queue.skew_ns)
    # A wait that returned before its recorded or inferred event waited for the op that ended as it returned.
    true = np.full(len(known), -1, dtype=np.int64)
    true[belied] = _ended_then(queue, start[belied], end[belied])
    told = np.flatnonzero(belied & (true >= 0) & (length > _WORTH_NS))
    done[told] = queue.end[true[told]]
    belied[told] = False
    waited = blocking & (done > start) & (done <= end + queue.skew_ns)
    name = host.name[calls].astype(np.int64)
    own = learn([name], blocking & ~waited & ~belied & (length < 50_000), length, SYNC_NS)
    # If the awaited work ended before the call could have returned anyway, the wait does not show the latency.
    clearly = waited & (done > start + own)
    latency = learn([name], clearly if clearly.any() else waited, np.maximum(end - done, 0), RETURN_NS)
    codes = np.full(len(known), Code.SYNC_DEVICE, dtype=np.int8)
    codes[of_stream] = Code.SYNC_STREAM
    codes[by_event] = Code.SYNC_EVENT
    codes[belied] = Code.CALL
    stream = np.where(of_stream, known.stream, -1).astype(np.int32)
    stream[everything] = of_device
    codes[told], stream[told] = Code.SYNC_EVENT, -1
    call = np.where(waited, np.minimum(own, length), length)
    target = np.where(by_event, known.record, -1).astype(np.int64)
    target[told] = queue.launch[true[told]]

    pick = np.flatnonzero(blocking)
    host_waits = rows_of(
        timeline,
        calls[pick],
        codes[pick],
        stream=stream[pick],
        record=target[pick],
        call=call[pick],
        latency=latency[pick],
    )
    pick = np.flatnonzero(~blocking & by_event & (known.stream >= 0))
    stream_waits = rows_of(
        timeline,
        calls[pick],
        Code.STREAM_WAIT,
        stream=known.stream[pick],
        record=target[pick],
        call=length[pick],
        latency=order.event_latency[known.stream[pick]],
    )
    used = unique(known.record[by_event]).astype(np.int64)
    on = np.full(len(host), -1, dtype=np.int32)
    on[known.record[by_event]] = known.on_stream[by_event]
    records = rows_of(timeline, used, Code.RECORD, stream=on[used], call=(host.end - host.start)[used])
    ops = unique(true[told])
    marks = rows_of(timeline, queue.launch[ops], Code.RECORD, stream=queue.stream[ops])
    return [records, marks, host_waits, stream_waits]


def _ended_then(queue: Queued, start: I64, end: I64) -> I64:
    """Returns, for each wait of the host, the op that ended just before the wait returned; -1 if
    there is none. Only ops that were launched before the wait are considered.

    Args:
        queue: The device ops, in launch order.
        start: The start of each wait, in ns.
        end: The end of each wait, in ns.
    """
    by_end = np.argsort(queue.end, kind="stable")
    last = np.searchsorted(queue.end[by_end], end, side="right") - 1
    found = np.full(len(start), -1, dtype=np.int64)
    for back in range(_TRIES):
        op = by_end[np.maximum(last - back, 0)] if len(by_end) else np.zeros(len(start), dtype=np.int64)
        fits = (found < 0) & (last >= back)
        fits[fits] &= (
            (queue.launch[op[fits]] >= 0)
            & ~queue.follows[op[fits]]
            & ~queue.issued[op[fits]]
            & (queue.begun[op[fits]] < start[fits])
            & (queue.end[op[fits]] > np.maximum(start[fits], end[fits] - _PROMPT_NS))
        )
        found[fits] = op[fits]
    return found


def held_until(timeline: Timeline, queue: Queued) -> I64:
    """Returns, for each op in `queue`, the time in ns until which its stream had to wait for events
    whose records are in the trace.
    """
    launched = timeline.host.start[np.maximum(queue.launch, 0)]
    return _held_before(_holds(timeline, queue), queue.on, launched)


def drained(timeline: Timeline, queue: Queued, start: I64, end: I64) -> tuple[I64, I32]:
    """Returns `(times, devices)` for each call that waits for a whole device: when this device was
    done with its work, in ns, and the index of the device. The index -1 stands for all devices.

    A call waits for the current device of its thread. The trace does not say which device is
    current. If a device was still working when the call returned, this device was not the current
    device. If a device's work ended after the call returned, but by no more than the clocks of host
    and device may be apart, the work counts as ended before.

    Args:
        timeline: The run.
        queue: The device ops, in launch order.
        start: The start of each call, in ns.
        end: The end of each call, in ns.
    """
    done, which = _all_done_before(queue, start), np.full(len(start), -1, dtype=np.int32)
    others = done > end + queue.skew_ns
    device = timeline.streams.device[queue.stream]
    if others.any() and len(np.unique(device)) > 1:
        best = np.full(len(start), _LONG_AGO, dtype=np.int64)
        for number, mine in groups(device):
            at = np.searchsorted(queue.begun[mine], start)
            its = np.where(at > 0, np.maximum.accumulate(queue.end[mine])[np.maximum(at - 1, 0)], _LONG_AGO)
            fits = others & (its > start) & (its <= end + queue.skew_ns) & (its > best)
            best[fits], which[fits] = its[fits], number
        done = np.where(which >= 0, best, done)
    return done, which


def _done_before(holds: _Holds, queue: Queued, stream: I32, time: I64) -> I64:
    """Returns, for each pair of `stream` and `time`, when the stream finished all work that it
    received before this time, in ns. The work of a stream is its ops, and the events for which it
    must wait.
    """
    return np.maximum(_ops_done_before(queue, stream, time), _held_before(holds, stream, time))


_Holds: TypeAlias = dict[int, tuple[I64, I64]]
"""For each stream: (times at which the host made the stream wait for an event, times at which these
waits ended), in ns.

The first times are ascending. The end of a wait is at least the end of all earlier waits of the
stream.
"""


def _holds(timeline: Timeline, queue: Queued) -> _Holds:
    host, waits = timeline.host, timeline.waits
    known = np.flatnonzero((waits.kind == WaitKind.STREAM_EVENT) & (waits.record >= 0) & (waits.on_stream >= 0))
    known = known[np.argsort(host.start[waits.host[known]], kind="stable")]
    called, recorded = host.start[waits.host[known]], host.start[waits.record[known]]
    stream, source = waits.stream[known], waits.on_stream[known]
    done = _ops_done_before(queue, source, recorded)
    of = dict(groups(stream))
    # An event is done only when its own stream is no longer held: by the last wait before the event, and all before it.
    held_by = np.full(len(known), -1, dtype=np.int64)
    for number, rows in groups(source):
        if number in of:
            at = np.searchsorted(called[of[number]], np.minimum(recorded[rows], called[rows]))
            held_by[rows] = np.where(at > 0, of[number][np.maximum(at - 1, 0)], -1)
    if (held_by >= 0).any():
        before = np.full(len(known), -1, dtype=np.int64)
        for rows in of.values():
            before[rows[1:]] = rows[:-1]
        done = _one_after_the_other(done, held_by, before)
    return {number: (called[rows], np.maximum.accumulate(done[rows])) for number, rows in of.items()}


def _one_after_the_other(done: I64, held_by: I64, before: I64) -> I64:
    """Returns, for each wait of a stream, the time in ns at which this wait and all earlier waits
    of the same stream are done.

    The event of a wait may depend on an earlier wait of another stream, whose event may depend on a
    still earlier wait. This chain may be as long as the run. So the waits are worked out one by
    one.

    Args:
        done: For each wait, when its event was done if earlier waits are ignored, in ns.
        held_by: For each wait, the earlier wait that its event depends on, or -1.
        before: For each wait, the previous wait of the same stream, or -1.
    """
    until: list[int] = []
    for own, other, previous in zip(done.tolist(), held_by.tolist(), before.tolist(), strict=True):
        latest = max(own, until[other]) if other >= 0 else own
        until.append(max(latest, until[previous]) if previous >= 0 else latest)
    return np.array(until, dtype=np.int64)


def _held_before(holds: _Holds, stream: I32, time: I64) -> I64:
    """Returns, for each pair of `stream` and `time`, the time in ns at which the waits that the
    stream received before `time` were done. Only waits for events count. If there were none, the
    result is a time long before the run.
    """
    result = np.full(len(stream), _LONG_AGO, dtype=np.int64)
    for number, rows in groups(stream):
        if number in holds:
            called, until = holds[number]
            at = np.searchsorted(called, time[rows])
            result[rows] = np.where(at > 0, until[np.maximum(at - 1, 0)], _LONG_AGO)
    return result


def _ops_done_before(queue: Queued, stream: I32, time: I64) -> I64:
    """Returns, for each pair of `stream` and `time`, the time in ns at which all ops were done that
    were launched on the stream before `time`. If there were none, the result is a time long before
    the run.
    """
    result = np.full(len(stream), _LONG_AGO, dtype=np.int64)
    asked = dict(groups(stream))
    for number, mine in by_stream(queue.stream, queue.on):
        if number in asked:
            rows = asked[number]
            done = np.maximum.accumulate(queue.end[mine])
            at = np.searchsorted(queue.begun[mine], time[rows])
            result[rows] = np.where(at > 0, done[np.maximum(at - 1, 0)], _LONG_AGO)
    return result


def _all_done_before(queue: Queued, time: I64) -> I64:
    done = np.maximum.accumulate(queue.end) if len(queue) else queue.end
    at = np.searchsorted(queue.begun, time)
    return np.where(at > 0, done[np.maximum(at - 1, 0)], _LONG_AGO) if len(queue) else np.full(len(time), _LONG_AGO)
