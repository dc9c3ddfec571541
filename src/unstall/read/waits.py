"""Finds what each wait waited for: an op, a stream or an event. If the trace file does not say
this, it is inferred from the order of calls, and the column `Waits.inferred` says so.
"""

from __future__ import annotations

import numpy as np

from unstall.read.events import Events
from unstall.read.names import wait_kind
from unstall.read.stacks import Interner
from unstall.timeline.columns import I32, I64, Bool, Device, Host, HostKind, Streams, WaitKind, Waits
from unstall.timeline.grouping import by_text, groups

_LONG_AGO, _NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def find_waits(
    host: Host, device: Device, streams: Streams, events: Events, intern: Interner, *, complete: bool
) -> tuple[Waits, list[str]]:
    """Finds what each wait of the host or of a stream waited for.

    Args:
        host: The host events.
        device: The ops of the device.
        streams: The streams of the timeline.
        events: The events of the trace file.
        intern: Gives the index of a text.
        complete: Whether the trace file names the event of every wait. If it does, an event whose
            record call is not in the file was never recorded, or was recorded before the trace
            began.

    Returns:
        `(waits, notes)`: the table of the waits, and a list with a note if the event of some waits
        is not known.
    """
    calls = np.flatnonzero((host.kind == HostKind.SYNC) | (host.kind == HostKind.EVENT_WAIT))
    said = _said(host.correlation[calls], events)
    known = said >= 0
    picked = events.sync_row[np.maximum(said, 0)] if len(events.sync_row) else said

    kind = by_text(host.name[calls], lambda index: wait_kind(intern.texts[index])).astype(np.int8)
    is_event = (kind == WaitKind.EVENT) | (kind == WaitKind.STREAM_EVENT)

    stream = np.full(len(calls), -1, dtype=np.int32)
    if known.any():
        stream[known] = _stream_rows(streams, events.device[picked[known]], events.stream[picked[known]])
    inferred = np.zeros(len(calls), dtype=np.bool_)
    before, after = _neighbour_streams(host, device, calls)
    for wanted, neighbour in ((WaitKind.STREAM, before), (WaitKind.STREAM_EVENT, after)):
        guess = (kind == wanted) & (stream < 0) & (neighbour >= 0)
        stream[guess] = neighbour[guess]
        inferred |= guess

    records = np.flatnonzero(host.kind == HostKind.EVENT_RECORD)
    records = records[np.argsort(host.start[records], kind="stable")]
    record_stream, _ = _neighbour_streams(host, device, records)
    record = np.full(len(calls), -1, dtype=np.int32)
    if known.any() and len(records):
        record[known] = _by_correlation(host, records, events.sync_record[said[known]])
    open_ = is_event & ~known if complete else is_event
    missing = open_ & (record < 0)
    if len(records) and missing.any():
        event_id = np.where(known, events.sync_event[np.maximum(said, 0)], -1) if len(events.sync_row) else said
        record[missing] = _guess_records(host, calls, records, event_id, missing)
        inferred |= missing & (record >= 0)
    by_time = np.full(len(host), -1, dtype=np.int32)
    by_time[records] = record_stream
    on_stream = np.where(record >= 0, by_time[np.maximum(record, 0)], -1).astype(np.int32)
    if known.any():
        recorded = events.sync_on_stream[said[known]]
        on = _stream_rows(streams, events.device[picked[known]], recorded)
        # On a stream that is named and has no op there is nothing to wait for: a program's own stream often is one.
        on_stream[known] = np.where(recorded >= 0, on, on_stream[known])

    waits = Waits(calls.astype(np.int32), kind, stream, record, on_stream, inferred)
    belied = _contradicted(host, device, waits)
    record[belied] = on_stream[belied] = -1
    unresolved = int((open_ & (on_stream < 0) & (record < 0)).sum())
    notes = []
    if unresolved:
        notes.append(f"{unresolved:,} of {int(is_event.sum()):,} waits for an event do not say which event")
    return waits, notes


def _said(correlation: I64, events: Events) -> I64:
    """Returns, for each call, the row of the columns `events.sync_*` that tells what the call
    waited for, or -1 if there is none.
    """
    if not len(events.sync_row):
        return np.full(len(correlation), -1, dtype=np.int64)
    theirs = events.correlation[events.sync_row]
    order = np.argsort(theirs, kind="stable")
    at = np.minimum(np.searchsorted(theirs[order], correlation), len(order) - 1)
    match = (theirs[order[at]] == correlation) & (correlation >= 0)
    return np.where(match, order[at], -1)


def _stream_rows(streams: Streams, device: I32, stream: I64) -> I32:
    """Returns, for each pair of `device` and `stream`, the row in `streams`, or -1 if no op ran on this stream."""
    known = {pair: row for row, pair in enumerate(zip(streams.device.tolist(), streams.stream.tolist(), strict=True))}
    asked = zip(device.tolist(), stream.tolist(), strict=True)
    return np.array([known.get(pair, -1) for pair in asked], dtype=np.int32)


def _neighbour_streams(host: Host, device: Device, calls: I64) -> tuple[I32, I32]:
    """Returns `(before, after)`. For each call, `before` has the stream of the last launch before
    it, and `after` the stream of the next launch after it.

    Only launches of the call's own thread count. -1 means that the thread has no such launch.
    """
    stream_of = np.full(len(host), -1, dtype=np.int32)
    joined = device.launch >= 0
    stream_of[device.launch[joined]] = device.stream[joined]
    launches = np.flatnonzero(stream_of >= 0)
    none = np.full(len(calls), -1, dtype=np.int32)
    if not len(launches):
        return none, none.copy()
    at = np.searchsorted(launches, calls)
    before = launches[np.maximum(at - 1, 0)]
    after = launches[np.minimum(at, len(launches) - 1)]
    same_before = (at > 0) & (host.thread[before] == host.thread[calls])
    same_after = (at < len(launches)) & (host.thread[after] == host.thread[calls])
    return (
        np.where(same_before, stream_of[before], -1).astype(np.int32),
        np.where(same_after, stream_of[after], -1).astype(np.int32),
    )


def _by_correlation(host: Host, records: I64, correlation: I64) -> I32:
    order = records[np.argsort(host.correlation[records], kind="stable")]
    at = np.minimum(np.searchsorted(host.correlation[order], correlation), len(order) - 1)
    match = (host.correlation[order[at]] == correlation) & (correlation >= 0)
    return np.where(match, order[at], -1).astype(np.int32)


def _guess_records(host: Host, calls: I64, records: I64, event_id: I64, missing: Bool) -> I32:
    """Returns, for each wait, the likely record call of the event that it waits for, or -1. Guesses
    only for the waits in `missing`.

    From CUDA 12.9 on, CUPTI's event ids number the record calls: the n-th id belongs to the n-th
    record call. The file does not have the id of the first record call. So this id is inferred: it
    is the smallest id with which every wait comes after its record call. The inferred id is exact
    if some wait is for the latest record call, as in `wait_stream`.

    For a wait without an event id, the likely record call is the latest record call of the same
    thread.
    """
    seen = np.searchsorted(host.start[records], host.start[calls])
    numbered = missing & (event_id >= 0)
    guess = np.full(len(calls), -1, dtype=np.int32)
    if numbered.any():
        first = int((event_id[numbered] - seen[numbered] + 1).max())
        index = event_id[numbered] - first
        inside = (index >= 0) & (index < len(records))
        guess[numbered] = np.where(inside, records[np.clip(index, 0, len(records) - 1)], -1)
    bare = missing & (event_id < 0)
    if bare.any():
        own = np.sort(records)
        at = np.searchsorted(own, calls[bare]) - 1
        row = own[np.maximum(at, 0)]
        same = (at >= 0) & (host.thread[row] == host.thread[calls[bare]])
        guess[bare] = np.where(same, row, -1)
    return guess[missing]


def _contradicted(host: Host, device: Device, waits: Waits) -> Bool:
    """Returns, for each wait, whether what it waited for was inferred, and the recorded times of
    the device show that the inference is wrong.

    An example: stream A waits for an event that was recorded on stream B. Then the first op on A
    after the wait cannot start until all ops have ended that were launched on B before the event
    was recorded. If this op started earlier, the inference is wrong.
    """
    guesses = np.flatnonzero(waits.inferred & (waits.kind == WaitKind.STREAM_EVENT) & (waits.record >= 0))
    launched = np.flatnonzero(device.launch >= 0)
    order = launched[np.argsort(host.start[device.launch[launched]], kind="stable")]
    begun = host.start[device.launch[order]]
    ahead_end = np.full(len(guesses), _LONG_AGO, dtype=np.int64)
    held_start = np.full(len(guesses), _NEVER, dtype=np.int64)
    recorded_on, held_on = (dict(groups(streams[guesses])) for streams in (waits.on_stream, waits.stream))
    nothing = np.zeros(0, dtype=np.int64)
    for stream, mine in groups(device.stream[order]):
        times, ops = begun[mine], order[mine]
        recorded, held = recorded_on.get(stream, nothing), held_on.get(stream, nothing)
        last = np.searchsorted(times, host.start[waits.record[guesses[recorded]]]) - 1
        ends = np.maximum.accumulate(device.end[ops])
        ahead_end[recorded] = np.where(last >= 0, ends[np.maximum(last, 0)], _LONG_AGO)
        following = np.searchsorted(times, host.start[waits.host[guesses[held]]])
        starts = device.start[ops][np.minimum(following, len(ops) - 1)]
        held_start[held] = np.where(following < len(ops), starts, _NEVER)
    belied = np.zeros(len(waits), dtype=np.bool_)
    belied[guesses] = held_start < ahead_end
    return belied
