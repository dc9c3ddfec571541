"""Builds a `Program` from a `Timeline`: instructions for the calls of the host, and dependencies
for the ops of the device.

A program has no recorded start times of the device. It has typical delays for each kind of call and
each stream. The delays are learned from ops and waits whose delay has a single cause. So if a
replay reproduces the recorded times, the model is right.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.replay.calls import find_capacity, given_back, launches
from unstall.replay.device import Queued, engines, queue_up
from unstall.replay.order import Order, find_order
from unstall.replay.program import Code, Instructions, Ops, Program, Recorded
from unstall.replay.threads import find_joins, merge_threads
from unstall.replay.unordered import InstructionRows, rows_of
from unstall.replay.waits import held_until, waits
from unstall.timeline.columns import I8, I32, I64, HostKind, Threads, Timeline, WaitKind
from unstall.timeline.grouping import groups

_MOST_NS = 1 << 57  # four years: it can be replayed many times before a time overflows


def build(timeline: Timeline, step_starts: I64, step_ends: I64) -> Program:
    """Returns the `Program` of a run: its events as instructions that depend on one another, so
    that they can be replayed.

    Args:
        timeline: The run.
        step_starts: The time at which the host begins each step, in ns, ascending.
        step_ends: The time at which the host ends each step, in ns, ascending.
    """
    timeline = _with_a_host(timeline)
    host = timeline.host
    held = np.zeros(len(host), dtype=np.bool_)
    held[timeline.waits.host[timeline.waits.kind == WaitKind.STREAM_EVENT]] = True
    queue = queue_up(timeline, held)
    capacity, calls_full = find_capacity(timeline, queue)
    order = find_order(timeline, queue, held_until(timeline, queue))
    parts = [
        *launches(timeline, queue, calls_full),
        *waits(timeline, queue, order),
        *given_back(timeline, queue),
    ]
    marks = np.full(len(step_starts), -1)
    first = rows_of(timeline, marks, Code.CALL, time=step_starts)
    last = rows_of(timeline, marks, Code.CALL, time=step_ends)
    return _bounded(_assemble(timeline, queue, [first, *parts, last], len(step_starts), capacity, order))


def _with_a_host(timeline: Timeline) -> Timeline:
    """Adds a dummy host event if the timeline has no host event, so that `timeline.host` has a row to index."""
    if len(timeline.host):
        return timeline
    columns = {name: getattr(timeline.host, name).dtype for name in timeline.host.__struct_fields__}
    none = {name: np.full(1, -1 if dtype == np.int32 else 0, dtype) for name, dtype in columns.items()}
    none["thread"] = np.zeros(1, dtype=np.int32)
    nobody = np.full(max(len(timeline.threads), 1), -1, dtype=np.int32)
    return replace(timeline, host=replace(timeline.host, **none), threads=Threads(nobody, nobody, nobody))


def _assemble(
    timeline: Timeline, queue: Queued, parts: list[InstructionRows], steps: int, capacity: int, across: Order
) -> Program:
    host = timeline.host

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    time, rows = column("time"), column("host")
    main = _main_thread(timeline, rows)
    part_of = merge_threads(timeline, rows[rows >= 0], main)
    lost = int(part_of.max(initial=0)) + 1
    thread = np.where(rows >= 0, part_of[host.thread[np.maximum(rows, 0)]], lost)
    thread[:steps] = thread[len(thread) - steps :] = 0
    end = np.where(rows >= 0, host.end[np.maximum(rows, 0)], time)
    woken, waking = find_joins(time, end, thread, lost)
    joins = rows_of(timeline, np.full(len(woken), -1), Code.JOIN, time=time[woken])
    parts = [*parts, joins]
    marks = slice(len(time) - steps, len(time))
    time, rows = column("time"), column("host")
    end, thread = np.append(end, end[waking]), np.append(thread, thread[woken])
    # If one step ends as the next begins, it ends first.
    later = np.ones(len(time), dtype=np.bool_)
    later[marks] = time[:steps] == time[marks]
    later[marks.stop :] = False
    order = np.lexsort((np.arange(len(time)), later, time))
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    # Ops and launches are in the same order, so counts assign ops to launches.
    counts = column("ops")[order]

    # If a host row has several instructions, the first is at its start and the others follow at once.
    time, end, thread = time[order], end[order], thread[order]
    again = np.append(False, (rows[order][1:] == rows[order][:-1]) & (rows[order][1:] >= 0))
    joins_in = order >= marks.stop
    work = np.zeros(len(order), dtype=np.int64)
    recorded = np.zeros((len(order), len(Recorded)), dtype=np.int32)
    kinds = _recorded(timeline)
    for number, mine in groups(thread):
        reach = np.maximum.accumulate(end[mine])
        work[mine] = np.maximum(time[mine] - np.append(0, reach[:-1]), 0)
        work[mine[again[mine] | joins_in[mine]]] = 0
        if number == lost:
            continue
        events = np.flatnonzero((kinds >= 0) & (part_of[host.thread] == number))
        at = np.searchsorted(reach, host.start[events], side="right")
        keep = at < len(mine)
        # One index for both dimensions: numpy adds at those faster.
        np.add.at(recorded.reshape(-1), mine[at[keep]] * len(Recorded) + kinds[events[keep]], np.int32(1))
    graphs = (rows[order] >= 0) & (host.kind[np.maximum(rows[order], 0)] == HostKind.GRAPH_LAUNCH) & ~again
    recorded[graphs, Recorded.NODE] = counts[graphs]

    by_row = np.full(len(host), -1, dtype=np.int64)
    codes = column("code")
    is_record = codes == Code.RECORD
    by_row[rows[is_record]] = position[is_record]
    record = column("record")
    target = np.where(record >= 0, by_row[np.maximum(record, 0)], -1)[order]
    late = target >= np.arange(len(order))
    codes = codes[order].copy()
    target[position[marks.stop :]] = position[waking]
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
            share=np.zeros(len(queue.engine), dtype=np.int32),
            blocks=np.zeros(len(queue.engine), dtype=np.int32),
            size=np.ones(len(queue.engine), dtype=np.int32),
            cached=np.zeros(len(queue.engine), dtype=np.int32),
            data=np.zeros(len(queue.engine), dtype=np.int32),
            uncached=np.zeros(len(queue.engine), dtype=np.int64),
            again=np.zeros(len(queue.engine), dtype=np.int64),
            after=across.after,
            lag=across.lag,
            duration=duration,
            latency=queue.latency,
            gap=queue.gap,
            device=queue.row.astype(np.int32),
        ),
        threads=lost + 1,
        device_of_stream=timeline.streams.device,
        engines=engines(timeline),
        capacity=capacity,
        step_starts=position[:steps],
        step_ends=position[marks],
        thread_of=part_of,
        notes=_notes(timeline, queue, across, part_of, len(woken)),
    )


def _notes(timeline: Timeline, queue: Queued, across: Order, part_of: I32, joins: int) -> tuple[str, ...]:
    """Returns notes for the report. Each says something that the trace lacks, and what the replay assumes instead."""
    follows, orphans = int((across.after >= 0).sum()), int((queue.orphan & (queue.launch >= 0)).sum())
    waits = timeline.waits
    events = (waits.kind == WaitKind.EVENT) | (waits.kind == WaitKind.STREAM_EVENT)
    guessed = int((events & waits.inferred & (waits.record >= 0)).sum())
    unknown = int((events & (waits.record < 0)).sum())
    shared = int((np.bincount(part_of[part_of >= 0], minlength=1) > 1).sum())
    said = (
        (guessed, f"{guessed:,} waits for an event: which one was worked out from the order of calls"),
        (
            unknown,
            f"{unknown:,} waits for an unknown event: the host waits for its whole device, a stream for nothing",
        ),
        (follows, f"{follows:,} ops start as another stream's op ends, with no event between them: they follow it"),
        (orphans, f"{orphans:,} ops have no call in the file: they were launched together with the op before them"),
        (shared, "threads that take turns, such as autograd's and its caller's, wait for each other"),
        (joins, f"{joins:,} times another thread continued after a pause: it had waited for the thread of the steps"),
    )
    return tuple(sentence for count, sentence in said if count)


def _bounded(program: Program) -> Program:
    """Limits extremely long times, so that the program can be replayed many times without overflow."""
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


def _main_thread(timeline: Timeline, rows: I64) -> int:
    """Returns the thread that runs the steps. It is the thread with the most instructions."""
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
