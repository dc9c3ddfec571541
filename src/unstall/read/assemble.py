"""Turns the events of a file, as a reader has read them, into a `Timeline`. All readers use it.

Only this module connects events with each other, for example an op with the call that launched it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from unstall.read import names
from unstall.read.autograd import forward_operators
from unstall.read.clock_reads import clock_reads_of
from unstall.read.collectives import collectives_of
from unstall.read.dependencies import dependencies_of
from unstall.read.events import Events
from unstall.read.faults import faults_of
from unstall.read.launches import ids_of_calls, join_launches
from unstall.read.left_out import left_out, undirected
from unstall.read.nest import find_parents
from unstall.read.races import races_of
from unstall.read.stacks import Interner, StackTree
from unstall.read.strays import at_home
from unstall.read.uploads import uploads_of
from unstall.read.waits import find_waits
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import (
    I8,
    I32,
    I64,
    Device,
    DeviceKind,
    Host,
    HostKind,
    Memory,
    Streams,
    Threads,
    Timeline,
)
from unstall.timeline.grouping import by_text, distinct, is_in

_NOTHING = -1


def assemble(events: Events) -> Timeline:
    """Returns the `Timeline` of the events of a trace file. Connects the events of the host, the
    ops of the device and the waits with each other. `Timeline.meta.notes` tells which events were
    dropped.
    """
    intern = Interner.of(events.strings)
    host_kind, device_kind = _kinds(events)
    notes, is_work_left_out = left_out(events, host_kind, device_kind)
    notes += _drop_far(events, host_kind, device_kind)
    events = replace(events, correlation=ids_of_calls(events, host_kind, device_kind != _NOTHING))

    threads, thread = _threads(events, intern)
    thread = at_home(events, host_kind, thread, threads)
    rows = _host_order(events, host_kind, thread)
    kind = host_kind[rows]
    start = events.start[rows]
    end = start + events.duration[rows]
    name = events.name[rows]
    thread = thread[rows]
    correlation = events.correlation[rows]
    parent = find_parents(kind, thread, start, end)
    op = _operators(kind, parent, events.external[rows], start, end)
    tree = StackTree(intern, exact=events.meta.exact_lines)
    stack = _stacks(tree, rows, kind, parent, events)
    lines, stacks = tree.tables(events.digests)
    host = Host(
        kind=kind,
        thread=thread,
        start=start,
        end=end,
        name=name,
        correlation=correlation,
        parent=parent,
        op=op,
        forward=forward_operators(events, rows, kind, thread, threads, start, parent),
        stack=stack,
        shapes=events.shapes[rows],
    )

    device_rows = np.flatnonzero(device_kind != _NOTHING)
    device_rows = device_rows[np.argsort(events.start[device_rows], kind="stable")]
    streams, stream = _streams(events, device_rows, intern)
    ops = _device(events, device_kind, device_rows, streams, stream, intern)
    complete = events.meta.recorder == "virtual"
    operators = events.external[rows[kind == HostKind.OP]]
    recorded = (events.external[device_rows] >= 0) & is_in(events.external[device_rows], operators)
    joined = join_launches(host, ops, recorded, complete=complete)
    device = joined.device
    notes += [*joined.damage, *([joined.note] if joined.note else []), *undirected(device)]
    waits, wait_notes = find_waits(host, device, streams, events, intern, complete=complete)
    notes += wait_notes
    collectives = collectives_of(events.collectives, host, device, rows, device_rows, intern)

    lines, clock_reads = clock_reads_of(events.clock_reads, events.meta.zero_ns, lines, intern)
    meta = replace(
        events.meta,
        notes=(*events.meta.notes, *notes),
        sound=events.meta.sound and not joined.damage and not is_work_left_out,
        has_stacks=bool((stack >= 0).any()),
    )
    faults, held = faults_of(events.faults, kind, correlation, events.external[rows], streams, intern)
    return Timeline(
        strings=tuple(intern.texts),
        host=host,
        device=device,
        waits=waits,
        threads=threads,
        streams=streams,
        lines=lines,
        stacks=stacks,
        memory=Memory(
            time=events.memory_time,
            device=events.memory_device,
            size=events.memory_size,
            allocated=events.memory_allocated,
            reserved=events.memory_reserved,
            address=events.memory_address,
        ),
        dependencies=dependencies_of(events.dependencies, kind, correlation, events.external[rows]),
        races=races_of(events.races, kind, correlation, events.external[rows], streams),
        uploads=uploads_of(events.uploads, kind, correlation, events.external[rows]),
        clock_reads=clock_reads,
        faults=faults,
        held=held,
        collectives=collectives,
        meta=meta,
    )


def _of_distinct(texts: I32, strings: list[str], meaning: Callable[[str], int]) -> I64:
    """Returns, for each row, the result of `meaning` for the row's text, or -1 for a row without a
    text. Calls `meaning` once per distinct text.

    Args:
        texts: For each row, the index of its text in `strings`, or -1.
        strings: The texts.
        meaning: A function of a text.
    """
    return by_text(texts, lambda index: int(meaning(strings[index])) if index >= 0 else -1)


def _kinds(events: Events) -> tuple[I8, I8]:
    """Returns `(host, device)`: the HostKind and the DeviceKind of each event.

    The HostKind is -1 for an event that does not belong to the host. The DeviceKind is -1 for an
    event that does not belong to the device.
    """
    host = _of_distinct(events.category, events.strings, names.host_kind).astype(np.int8)
    device = _of_distinct(events.category, events.strings, names.device_kind).astype(np.int8)
    ops = np.flatnonzero(host == HostKind.OP)
    host[ops[_of_distinct(events.name[ops], events.strings, names.is_span) == 1]] = HostKind.ANNOTATION
    calls = np.flatnonzero(host == HostKind.CALL)
    host[calls] = _of_distinct(events.name[calls], events.strings, names.call_kind)
    return host, device


_FAR_NS = 2**52  # 52 days: no recording is longer, and sums of such times stay exact everywhere


def _drop_far(events: Events, host_kind: I8, device_kind: I8) -> list[str]:
    """Drops events that start months away from the other events, or that last for months: the clock
    of such events must be wrong.

    If any event is dropped, subtracts the earliest remaining start from all times in `events`, and
    returns a list with one note. If no event is dropped, returns an empty list.
    """
    work = np.flatnonzero((host_kind != _NOTHING) | (device_kind != _NOTHING))
    if not len(work):
        return []
    start = events.start[work]
    middle = np.partition(start, len(start) // 2)[len(start) // 2]
    far = work[(np.abs(start - middle) > _FAR_NS) | (events.duration[work] > _FAR_NS)]
    if not len(far):
        return []
    host_kind[far] = device_kind[far] = _NOTHING
    near = np.setdiff1d(work, far)
    zero = int(events.start[near].min()) if len(near) else 0
    for times in (events.start, events.flow_time, events.memory_time):
        times -= zero
    events.meta = replace(events.meta, zero_ns=events.meta.zero_ns + zero)
    return [f"{len(far):,} events were dropped: they are months away from the others, or last for months"]


def _threads(events: Events, intern: Interner) -> tuple[Threads, I32]:
    """Returns `(threads, index)`: the distinct (process, thread) pairs, and for each event the index of its pair."""
    processes, process_of = distinct(events.process)
    threads, thread_of = distinct(events.thread)
    pairs, inverse = distinct(process_of * len(threads) + thread_of)
    width = max(len(threads), 1)
    process, thread = processes[pairs // width].astype(np.int32), threads[pairs % width].astype(np.int32)
    labels = [
        events.thread_names.get((events.strings[p], events.strings[t]), "")
        for p, t in zip(process, thread, strict=True)
    ]
    return (
        Threads(
            process=process,
            thread=thread,
            name=np.array([intern(label) if label else -1 for label in labels], dtype=np.int32),
        ),
        inverse.astype(np.int32),
    )


# Of events with the same start and end, the one with the lower value encloses the other.
_OUTERMOST_FIRST = np.full(len(HostKind), 3, dtype=np.int64)
_OUTERMOST_FIRST[HostKind.ANNOTATION] = 0
_OUTERMOST_FIRST[HostKind.PYTHON] = 1
_OUTERMOST_FIRST[HostKind.OP] = 2


def _host_order(events: Events, kind: I8, thread: I32) -> I64:
    rows = np.flatnonzero(kind != _NOTHING)
    start = events.start[rows]
    last_first = _OUTERMOST_FIRST[kind[rows]] - len(_OUTERMOST_FIRST) * (start + events.duration[rows])
    return rows[np.lexsort((last_first, start, thread[rows]))]


def _operators(kind: I8, parent: I32, external: I64, start: I64, end: I64) -> I32:
    """Returns, for each host event, the row of its operator in `timeline.host`, or -1.

    The operator is the innermost one around the event. If no operator is around the event, it is
    the operator with the event's external id. An operator found by its id counts only if it begins
    before the event and ends after it, because recorders without operators number external ids in
    their own way.
    """
    op = nearest(parent, kind == HostKind.OP)
    ops = np.flatnonzero(kind == HostKind.OP)
    lost = np.flatnonzero((op < 0) & (external >= 0) & (kind >= HostKind.LAUNCH) & (kind <= HostKind.CALL))
    if not (len(ops) and len(lost)):
        return op
    ops = ops[np.argsort(external[ops], kind="stable")]
    found = ops[np.minimum(np.searchsorted(external[ops], external[lost]), len(ops) - 1)]
    matches = (external[found] == external[lost]) & (start[found] <= start[lost]) & (end[found] >= end[lost])
    op[lost[matches]] = found[matches]
    return op


def _stacks(tree: StackTree, rows: I64, kind: I8, parent: I32, events: Events) -> I32:
    """Returns, for each host event, the row of `Stacks` of its innermost known Python frame, or -1.

    This frame is the innermost frame around the event. If no frame is around the event, it is the
    innermost frame in the "Call stack" text of the event's operator.
    """
    frames = np.flatnonzero(kind == HostKind.PYTHON).astype(np.int32)
    stack = tree.of_frames(frames, events.name[rows], parent)
    texts = events.stack[rows]
    written = tree.of_texts(texts, wanted=(stack < 0) & (kind != HostKind.PYTHON))
    row = nearest(parent, written >= 0)
    return np.where(stack >= 0, stack, np.where(row >= 0, written[row], -1)).astype(np.int32)


def _streams(events: Events, rows: I64, intern: Interner) -> tuple[Streams, I32]:
    """Returns `(streams, index)`: the distinct (device, stream) pairs of the device's ops, and for
    each op the index of its pair.
    """

    def number(text: str) -> int:
        digits = text.removeprefix("stream").strip()
        return int(digits) if digits.isdecimal() and len(digits) < 10 else -1

    device = events.device[rows].astype(np.int64)
    unnamed = device < 0
    device[unnamed] = _of_distinct(events.process[rows[unnamed]], intern.texts, number)
    stream = events.stream[rows]
    unnamed = stream < 0
    stream[unnamed] = _of_distinct(events.thread[rows[unnamed]], intern.texts, number)
    devices, device_of = distinct(np.maximum(device, 0))
    numbers, number_of = distinct(stream)
    pairs, inverse = distinct(device_of * len(numbers) + number_of)
    width = max(len(numbers), 1)
    return (
        Streams(device=devices[pairs // width].astype(np.int32), stream=numbers[pairs % width]),
        inverse.astype(np.int32),
    )


def _device(events: Events, kind: I8, rows: I64, streams: Streams, stream: I32, intern: Interner) -> Device:
    """Returns the table of the device's ops. The `launch` of each op is -1 until `join_launches` finds the launches."""
    copies = kind[rows] == DeviceKind.COPY
    direction = np.zeros(len(rows), dtype=np.int8)
    memory = np.zeros(len(rows), dtype=np.int8)
    copy_names = events.name[rows[copies]]
    direction[copies] = _of_distinct(copy_names, intern.texts, names.copy_direction)
    memory[copies] = _of_distinct(copy_names, intern.texts, names.host_memory)
    start = events.start[rows]
    return Device(
        kind=kind[rows],
        device=streams.device[stream],
        stream=stream,
        start=start,
        end=start + events.duration[rows],
        name=events.name[rows],
        correlation=events.correlation[rows],
        launch=np.full(len(rows), -1, dtype=np.int32),
        bytes=events.bytes[rows],
        direction=direction,
        host_memory=memory,
        blocks=events.blocks[rows],
        share=events.share[rows],
    )
