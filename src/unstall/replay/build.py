"""A `Timeline` → a `Program`: every call as an instruction, every device op with what it waits for.

A program holds no start times of the device. What it knows of a device's delays is one figure for each kind of
call and stream, learned from those ops and waits whose delay has one cause; so a replay that gives the recorded
times back says that the model is right.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from unstall.grouping import groups
from unstall.replay import device as on_device
from unstall.replay.delays import learn
from unstall.replay.order import Order, find_order
from unstall.replay.program import QUEUE_CAPACITY, Code, Instructions, Ops, Program, Recorded
from unstall.replay.threads import merge_threads
from unstall.timeline import I8, I32, I64, Bool, HostKind, Threads, Timeline, WaitKind

SYNC_NS = 3_000
"""A wait that finds everything done: H200, CUDA 13."""
RETURN_NS = 6_000
"""From the end of what is waited for to the return of the call: H200, CUDA 13."""

_SKEW_NS = 2_000
_LONG_AGO = np.iinfo(np.int64).min // 2
_MOST_NS = 1 << 57  # four years, which may be replayed many times over before any time overflows
_SURELY_ROOM = 256  # launches outstanding
_LONG_CALL = 5  # times the usual one: it waited for room in the launch queue


@dataclass(eq=False, slots=True)
class _Rows:
    """Instructions before they are put in order."""

    time: I64  # of the call
    code: I8
    host: I64
    stream: I32
    record: I64  # host row of the record it waits for, or -1
    call: I64
    latency: I64
    ops: I64  # how many


def _rows(timeline: Timeline, host: I64, code: int | I8, **columns: int | I64 | I32) -> _Rows:
    count = len(host)

    def column(name: str, default: int, dtype: type) -> np.ndarray:
        return np.broadcast_to(np.asarray(columns.get(name, default), dtype), count)

    time = timeline.host.start[np.maximum(host, 0)] if "time" not in columns else column("time", 0, np.int64)
    return _Rows(
        time,
        np.broadcast_to(np.asarray(code, np.int8), count),
        host,
        column("stream", -1, np.int32),
        column("record", -1, np.int64),
        column("call", 0, np.int64),
        column("latency", 0, np.int64),
        column("ops", 0, np.int64),
    )


def build(timeline: Timeline, step_starts: I64, step_ends: I64) -> Program:
    """`step_starts` and `step_ends` in ns, in order: the host's parts of the steps."""
    timeline = _with_a_host(timeline)
    host = timeline.host
    held = np.zeros(len(host), dtype=np.bool_)
    held[timeline.waits.host[timeline.waits.kind == WaitKind.STREAM_EVENT]] = True
    queue = on_device.queue_up(timeline, held)
    capacity, calls_full = _capacity(timeline, queue)
    order = find_order(timeline, queue, _held_until(timeline, queue))
    parts = [
        *_launches(timeline, queue, calls_full),
        *_waits(timeline, queue, order),
        *_allocations(timeline, queue),
    ]
    marks = np.full(len(step_starts), -1)
    first = _rows(timeline, marks, Code.CALL, time=step_starts)
    last = _rows(timeline, marks, Code.CALL, time=step_ends)
    return _bounded(_assemble(timeline, queue, [first, *parts, last], len(step_starts), capacity, order))


def _with_a_host(timeline: Timeline) -> Timeline:
    """With one host event that nothing points at, where none was recorded: rows can be looked up then."""
    if len(timeline.host):
        return timeline
    columns = {column.name: getattr(timeline.host, column.name).dtype for column in fields(timeline.host)}
    none = {name: np.full(1, -1 if dtype == np.int32 else 0, dtype) for name, dtype in columns.items()}
    none["thread"] = np.zeros(1, dtype=np.int32)
    nobody = np.full(max(len(timeline.threads), 1), -1, dtype=np.int32)
    return replace(timeline, host=replace(timeline.host, **none), threads=Threads(nobody, nobody, nobody))


def _capacity(timeline: Timeline, queue: on_device.Queued) -> tuple[int, Bool]:
    """How many launches a stream can have outstanding, and by op whether its launch had to wait for room."""
    host = timeline.host
    full = np.zeros(len(queue), dtype=np.bool_)
    capacity = QUEUE_CAPACITY
    call = np.maximum(queue.launch, 0)
    length = (host.end - host.start)[call]
    for _, mine in groups(queue.stream):
        mine = mine[(queue.launch[mine] >= 0) & ~queue.follows[mine]]
        if len(mine) <= _SURELY_ROOM:
            continue
        done = np.maximum.accumulate(queue.end[mine])
        depth = np.arange(len(mine)) - np.searchsorted(done, host.end[call[mine]], side="right")
        # Where the device is much the slower one, most calls wait for room; those of a short queue never do.
        usual = np.median(length[mine][depth <= _SURELY_ROOM]) if (depth <= _SURELY_ROOM).any() else np.median(length)
        long = (length[mine] > _LONG_CALL * usual) & (depth > _SURELY_ROOM)
        if long.sum() > 8:
            deepest = int(np.median(depth[long]))
            stuck = long & (np.abs(depth - deepest) <= deepest // 50 + 2)
            if stuck.sum() > 0.5 * long.sum():
                seen = max(deepest, _SURELY_ROOM) + 1  # before this one
                capacity = min(capacity, seen) if capacity != QUEUE_CAPACITY else seen
                full[mine[long]] = True
    return capacity, full


def _launches(timeline: Timeline, queue: on_device.Queued, full: Bool) -> list[_Rows]:
    host = timeline.host
    first = np.flatnonzero(~queue.follows & (queue.launch >= 0))
    calls = queue.launch[first]
    counts = np.diff(np.append(np.flatnonzero(~queue.follows), len(queue)))
    counts = counts[np.searchsorted(np.flatnonzero(~queue.follows), first)]
    length = (host.end - host.start)[calls]
    usual = learn([host.name[calls].astype(np.int64)], ~full[first], length, LAUNCH_NS)
    length = np.where(full[first], np.minimum(length, usual), length)
    last = first + counts - 1
    issued, blocks = queue.issued[first], queue.blocks[first]
    own = np.where(issued, np.clip(queue.latency[first], 0, length), length)
    queue.latency[first[issued]] -= own[issued]
    launches = _rows(timeline, calls, Code.LAUNCH, stream=queue.stream[first], call=own, ops=counts)
    rows = calls[blocks]
    waits = _rows(
        timeline,
        rows,
        Code.SYNC_STREAM,
        stream=queue.stream[first[blocks]],
        latency=host.end[rows] - queue.end[last[blocks]],
    )
    rest = issued & ~blocks
    waits_not = _rows(timeline, calls[rest], Code.CALL, call=(length - own)[rest])
    lost = np.flatnonzero(queue.launch < 0)
    none = np.full(len(lost), -1)
    orphans = _rows(timeline, none, Code.LAUNCH, time=queue.begun[lost], stream=queue.stream[lost], ops=1)
    return [orphans, launches, waits, waits_not]  # as they stand in the queue where they begin together


LAUNCH_NS = 5_000


def _done_before(queue: on_device.Queued, stream: I32, time: I64) -> I64:
    """When all that was launched on a stream before a time was done; long ago if nothing was."""
    result = np.full(len(stream), _LONG_AGO, dtype=np.int64)
    asked = dict(groups(stream))
    for number, mine in groups(queue.stream):
        if number in asked:
            rows = asked[number]
            done = np.maximum.accumulate(queue.end[mine])
            at = np.searchsorted(queue.begun[mine], time[rows])
            result[rows] = np.where(at > 0, done[np.maximum(at - 1, 0)], _LONG_AGO)
    return result


def _all_done_before(queue: on_device.Queued, time: I64) -> I64:
    done = np.maximum.accumulate(queue.end) if len(queue) else queue.end
    at = np.searchsorted(queue.begun, time)
    return np.where(at > 0, done[np.maximum(at - 1, 0)], _LONG_AGO) if len(queue) else np.full(len(time), _LONG_AGO)


def _drained(timeline: Timeline, queue: on_device.Queued, start: I64, end: I64) -> tuple[I64, I32]:
    """When the device that calls waited for was done, and which it was: -1 for every one.

    A call waits for the device that its thread is at, which no file says: where one goes on after the call, it was
    another.
    """
    done, which = _all_done_before(queue, start), np.full(len(start), -1, dtype=np.int32)
    others = done > end + _SKEW_NS
    device = timeline.streams.device[queue.stream]
    if others.any() and len(np.unique(device)) > 1:
        best = np.full(len(start), _LONG_AGO, dtype=np.int64)
        for number, mine in groups(device):
            at = np.searchsorted(queue.begun[mine], start)
            its = np.where(at > 0, np.maximum.accumulate(queue.end[mine])[np.maximum(at - 1, 0)], _LONG_AGO)
            fits = others & (its > start) & (its <= end + _SKEW_NS) & (its > best)
            best[fits], which[fits] = its[fits], number
        done = np.where(which >= 0, best, done)
    return done, which


def _waits(timeline: Timeline, queue: on_device.Queued, order: Order) -> list[_Rows]:
    host, waits = timeline.host, timeline.waits
    record = np.maximum(waits.record, 0)
    calls = waits.host.astype(np.int64)
    start, end = host.start[calls], host.end[calls]
    by_event = (
        ((waits.kind == WaitKind.EVENT) | (waits.kind == WaitKind.STREAM_EVENT))
        & (waits.record >= 0)
        & (waits.on_stream >= 0)
    )
    by_stream = (waits.kind == WaitKind.STREAM) & (waits.stream >= 0)
    done = np.full(len(waits), _LONG_AGO, dtype=np.int64)
    done[by_event] = _done_before(queue, waits.on_stream[by_event], host.start[record[by_event]])
    done[by_stream] = _done_before(queue, waits.stream[by_stream], start[by_stream])
    blocking = waits.kind != WaitKind.STREAM_EVENT
    everything = blocking & ~by_event & ~by_stream
    done[everything], of_device = _drained(timeline, queue, start[everything], end[everything])

    waited = blocking & (done > start) & (done <= end + _SKEW_NS)
    belied = blocking & (done > end + _SKEW_NS)
    length = end - start
    name = host.name[calls].astype(np.int64)
    own = learn([name], blocking & ~waited & ~belied & (length < 50_000), length, SYNC_NS)
    # A wait that was over before the call by itself would have been says nothing of how long returning takes.
    clearly = waited & (done > start + own)
    latency = learn([name], clearly if clearly.any() else waited, np.maximum(end - done, 0), RETURN_NS)
    codes = np.full(len(waits), Code.SYNC_DEVICE, dtype=np.int8)
    codes[by_stream] = Code.SYNC_STREAM
    codes[by_event] = Code.SYNC_EVENT
    codes[belied] = Code.CALL
    stream = np.where(by_stream, waits.stream, -1).astype(np.int32)
    stream[everything] = of_device
    call = np.where(waited, np.minimum(own, length), length)
    target = np.where(by_event, waits.record, -1).astype(np.int64)

    pick = np.flatnonzero(blocking)
    host_waits = _rows(
        timeline,
        calls[pick],
        codes[pick],
        stream=stream[pick],
        record=target[pick],
        call=call[pick],
        latency=latency[pick],
    )
    pick = np.flatnonzero(~blocking & by_event & (waits.stream >= 0))
    stream_waits = _rows(
        timeline,
        calls[pick],
        Code.STREAM_WAIT,
        stream=waits.stream[pick],
        record=target[pick],
        call=length[pick],
        latency=order.event_latency[waits.stream[pick]],
    )
    used = np.unique(waits.record[by_event]).astype(np.int64)
    on = np.full(len(host), -1, dtype=np.int32)
    on[waits.record[by_event]] = waits.on_stream[by_event]
    records = _rows(timeline, used, Code.RECORD, stream=on[used], call=(host.end - host.start)[used])
    return [records, host_waits, stream_waits]


def _held_until(timeline: Timeline, queue: on_device.Queued) -> I64:
    """By op: until when the events held it that its stream is known to wait for."""
    host, waits = timeline.host, timeline.waits
    result = np.full(len(queue), _LONG_AGO, dtype=np.int64)
    known = np.flatnonzero((waits.kind == WaitKind.STREAM_EVENT) & (waits.record >= 0) & (waits.on_stream >= 0))
    done = _done_before(queue, waits.on_stream[known], host.start[waits.record[known]])
    by_stream = dict(groups(waits.stream[known]))
    for number, mine in groups(queue.stream):
        if number in by_stream:
            rows = by_stream[number]
            rows = rows[np.argsort(host.start[waits.host[known[rows]]], kind="stable")]
            until = np.maximum.accumulate(done[rows])
            at = np.searchsorted(host.start[waits.host[known[rows]]], host.start[np.maximum(queue.launch[mine], 0)])
            result[mine] = np.where(at > 0, until[np.maximum(at - 1, 0)], _LONG_AGO)
    return result


def _allocations(timeline: Timeline, queue: on_device.Queued) -> list[_Rows]:
    """Those during which the device ran dry: they waited for it."""
    host = timeline.host
    rows = np.flatnonzero((host.kind == HostKind.ALLOC) | (host.kind == HostKind.FREE))
    done, which = _drained(timeline, queue, host.start[rows], host.end[rows])
    drained = (done > host.start[rows]) & (done <= host.end[rows])
    rows, done = rows[drained], done[drained]
    return [
        _rows(timeline, rows, Code.SYNC_DEVICE, stream=which[drained]),
        _rows(timeline, rows, Code.CALL, call=host.end[rows] - done),
    ]


def _assemble(
    timeline: Timeline, queue: on_device.Queued, parts: list[_Rows], steps: int, capacity: int, across: Order
) -> Program:
    host = timeline.host

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    time, rows = column("time"), column("host")
    main = _main_thread(timeline, time[:steps], rows)
    part_of = merge_threads(timeline, rows[rows >= 0], main)
    lost = int(part_of.max(initial=0)) + 1
    thread = np.where(rows >= 0, part_of[host.thread[np.maximum(rows, 0)]], lost)
    thread[:steps] = thread[len(thread) - steps :] = 0
    # Where one step ends as the next begins, it ends first.
    later = np.append(np.ones(len(time) - steps, dtype=np.bool_), time[:steps] == time[len(time) - steps :])
    order = np.lexsort((np.arange(len(time)), later, time))
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    # The n-th op in the queue belongs to the n-th launch.
    counts = column("ops")[order]

    end = np.where(rows >= 0, host.end[np.maximum(rows, 0)], time)
    # Of a host row with several instructions the first is at its start and the others follow at once.
    time, end, thread = time[order], end[order], thread[order]
    again = np.append(False, (rows[order][1:] == rows[order][:-1]) & (rows[order][1:] >= 0))
    work = np.zeros(len(order), dtype=np.int64)
    recorded = np.zeros((len(order), len(Recorded)), dtype=np.int32)
    kinds = _recorded(timeline)
    for number, mine in groups(thread):
        reach = np.maximum.accumulate(end[mine])
        work[mine] = np.maximum(time[mine] - np.append(0, reach[:-1]), 0)
        work[mine[again[mine]]] = 0
        if number == lost:
            continue
        events = np.flatnonzero((kinds >= 0) & (part_of[host.thread] == number))
        at = np.searchsorted(reach, host.start[events], side="right")
        keep = at < len(mine)
        np.add.at(recorded, (mine[at[keep]], kinds[events[keep]]), 1)

    by_row = np.full(len(host), -1, dtype=np.int64)
    codes = column("code")
    is_record = codes == Code.RECORD
    by_row[rows[is_record]] = position[is_record]
    record = column("record")
    target = np.where(record >= 0, by_row[np.maximum(record, 0)], -1)[order]
    late = target >= np.arange(len(order))
    codes = codes[order].copy()
    codes[late] = Code.CALL
    duration = queue.end - queue.start
    return Program(
        instructions=Instructions(
            code=codes,
            thread=thread.astype(np.int32),
            stream=column("stream")[order],
            target=target.astype(np.int32),
            work=work,
            call=column("call")[order].copy(),
            latency=column("latency")[order].copy(),
            ops=np.cumsum(counts),
            host=rows[order].astype(np.int32),
            recorded=recorded,
        ),
        ops=Ops(
            stream=queue.stream,
            engine=queue.engine,
            after=across.after,
            lag=across.lag,
            duration=duration,
            latency=queue.latency,
            gap=queue.gap,
            device=queue.row.astype(np.int32),
        ),
        threads=lost + 1,
        device_of_stream=timeline.streams.device,
        engines=on_device.engines(timeline),
        capacity=capacity,
        step_starts=position[:steps],
        step_ends=position[len(position) - steps :],
        thread_of=part_of,
    )


def _bounded(program: Program) -> Program:
    """What a file says of centuries is cut to what can be replayed, again and again."""
    do, ops = program.instructions, program.ops
    times = (do.work, do.call, do.latency, ops.duration, ops.latency, ops.gap, ops.lag)
    if sum(np.abs(column.astype(np.float64)).sum() for column in times) < _MOST_NS:
        return program
    most = _MOST_NS // sum(map(len, times))
    work, call, latency, duration, arrival, gap, lag = (np.clip(column, -most, most) for column in times)
    return replace(
        program,
        instructions=replace(do, work=work, call=call, latency=latency),
        ops=replace(ops, duration=duration, latency=arrival, gap=gap, lag=lag),
    )


def _main_thread(timeline: Timeline, starts: I64, rows: I64) -> int:
    """The thread of the steps: the one with most of the instructions."""
    known = rows[rows >= 0]
    parts = [
        (-len(mine), int(timeline.host.start[known[mine]].min()), thread)
        for thread, mine in groups(timeline.host.thread[known])
    ]
    return min(parts)[2] if parts else 0


def _recorded(timeline: Timeline) -> I8:
    host = timeline.host
    kinds = np.full(len(host), -1, dtype=np.int8)
    kinds[(host.kind == HostKind.OP) | (host.kind == HostKind.ANNOTATION)] = Recorded.OPERATOR
    kinds[host.kind == HostKind.PYTHON] = Recorded.FRAME
    kinds[(host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL)] = Recorded.CALL
    launched = timeline.device.launch[timeline.device.launch >= 0]
    kinds[launched] = Recorded.LAUNCH
    return kinds
