"""Sorts the ops of the device into launch order, and finds the typical delays of each op."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.locate.kinds import is_communication
from unstall.replay.branches import by_stream, ended_last, first_of, launched_on, roots, spread
from unstall.replay.delays import learn
from unstall.timeline.clock_skew import clock_skew
from unstall.timeline.columns import I32, I64, Bool, CopyDirection, DeviceKind, HostKind, HostMemory, Timeline
from unstall.timeline.copies import STAGED_AT_ONCE_BYTES, is_synchronous
from unstall.timeline.grouping import groups, union, unique

LATENCY_NS = 2_000
"""Time in ns from the end of a launch call to the start of its op on an idle stream (H200, CUDA 13)."""
GAP_NS = 1_000
"""Time in ns between two ops that follow each other on a stream, if the second was launched long
before it started (H200, CUDA 13).
"""

_STAGED_NS = 50_000  # a call that staged a copy may return this long before the copy's recorded end
_SKEW_NS = 2_000  # at least; a file whose clocks are further apart shows it
_ANOTHERS_NS = 1_000_000  # an op that began this long before its call belongs to another call
_LARGE_NS = 20_000  # a kernel this long fills the device; shorter ones fit beside others
_TOGETHER = 0.01  # of kernels' time; less overlap is measurement error
_LATE_NS = 1_000  # beyond the usual gap after the op before it: it waited for its launch
_QUEUED_NS = 5_000  # launched this long before its turn, it was certainly queued
_BUSY_NS = 100_000  # an op this late waited for work that is not in the file; a call this much later went on by itself
_LONG_AGO = np.iinfo(np.int64).min // 2
_ENGINES = {CopyDirection.HOST_TO_DEVICE: 0, CopyDirection.DEVICE_TO_HOST: 1}


class Queued(msgspec.Struct, frozen=True, eq=False):
    """The ops of the device in launch order, one row for each op. Times are in ns. The index of an
    op is its row in this table.
    """

    row: I64
    launch: I64  # host row of its call, else of the last known call of its stream, else -1
    begun: I64  # start of its launch
    orphan: Bool  # its own call is not in the file
    follows: Bool  # not the first op of its launch
    previous: I64  # index of the op before it on its stream, or -1
    previous_end: I64  # latest end of the ops before it on its stream
    stream: I32
    on: I32  # the stream passed to its call; ops of a graph may run on others
    start: I64
    end: I64
    engine: I32
    issued: Bool  # arrives `latency` after its call began, not after it returned
    blocks: Bool  # its call returned only when its ops were done
    latency: I64
    gap: I64
    begins: Bool  # begins a branch of its graph without waiting for another op
    beside: I64  # the op of its launch on another stream that ended last before it began, or -1
    slack: int  # ordinary variation of the gaps within graphs, ns
    skew_ns: int  # how far apart the clocks of host and device may be

    def __len__(self) -> int:
        return len(self.row)


def queue_up(timeline: Timeline, held: Bool) -> Queued:
    """Sorts the device ops of a run into launch order, and finds their typical delays.

    Args:
        timeline: The run.
        held: A mask of the rows of `timeline.host` that make a stream wait for an event. Delays are
            not learned from the first launch on the stream after such a wait.
    """
    host, device = timeline.host, timeline.device
    skew_ns = max(_SKEW_NS, clock_skew(timeline))
    launch = _launches(timeline).astype(np.int64)
    own = launch == device.launch
    begun = _begun(timeline, launch)
    row = np.lexsort((device.start, launch, begun))
    begun = begun[row]
    launch = launch[row]
    stream, start, end = device.stream[row], device.start[row], device.end[row]
    follows = np.append(False, (launch[1:] == launch[:-1]) & (launch[1:] >= 0)) if len(row) else np.zeros(0, np.bool_)
    previous = np.full(len(row), -1, dtype=np.int64)
    previous_end = np.full(len(row), _LONG_AGO, dtype=np.int64)
    for _, mine in groups(stream):
        previous[mine[1:]] = mine[:-1]
        previous_end[mine[1:]] = np.maximum.accumulate(end[mine])[:-1]
    orphan = ~own[row] | (launch < 0)

    call = np.maximum(launch, 0)
    on = launched_on(launch, host.thread[call].astype(np.int64), stream)
    for _, mine in by_stream(stream, on):
        opens = np.flatnonzero(~follows[mine[1:]]) + 1
        before = np.maximum.accumulate(end[mine])[opens - 1]
        previous_end[mine[opens]] = np.maximum(previous_end[mine[opens]], before)
    called, returned = host.start[call], host.end[call]
    kind = host.kind[call].astype(np.int64)
    sort = _sort(timeline)[row]
    apart = (launch >= 0) & ~follows & ~orphan & ~_after_event(timeline, launch, held, on)
    free = apart & (previous_end < called) & (start >= called)
    blocks = _blocks(timeline, launch, row, skew_ns) & ~follows
    graphs = (kind == HostKind.GRAPH_LAUNCH) & (launch >= 0)
    goes_on = (launch >= 0) & ~follows & (start >= called) & (returned - start > _BUSY_NS)
    issued = blocks | graphs | goes_on
    large = device.bytes[row] > STAGED_AT_ONCE_BYTES
    like = ((kind * 64 + sort) * 2 + large) * 2 + issued
    delay = np.where(issued, start - called, start - returned)
    gap = start - previous_end
    free |= apart & graphs & (previous_end <= returned) & (gap > GAP_NS + _LATE_NS)
    likes = [like * len(timeline.streams) + stream, like, kind * 2 + issued]
    after_call = learn(likes, free & ~issued & (delay < _BUSY_NS), delay, LATENCY_NS)
    latency = np.where(issued, learn(likes, free & issued, delay, LATENCY_NS), after_call)
    # Before its op begins, such a call does host work, so the recorded latency is kept.
    latency = np.where(
        issued & free, delay, np.where(issued, np.minimum(latency, returned - called + LATENCY_NS), latency)
    )
    latency[follows] = 0
    lost = launch < 0
    latency[lost] = (start - np.maximum(begun, 0))[lost]

    before = np.where(previous >= 0, sort[previous], 63)
    beside = ended_last(launch, stream, start, end)
    within = follows & ~orphan & (previous >= 0) & (launch[previous] == launch)
    within &= (beside < 0) | (end[beside] < previous_end)
    queued = apart & (previous_end > returned + _QUEUED_NS) & (gap >= 0)
    if len(unique(stream[lost])) > 1:  # maybe branches of one graph: then the op waited for all of them
        queued &= ~lost[previous]
    pair = before * 64 + sort
    own = learn([pair * len(timeline.streams) + stream, pair, sort], queued & (gap < _BUSY_NS), gap, GAP_NS)
    graph = learn([launch * 4096 + pair, pair], within & (gap >= 0), gap, GAP_NS)
    slack = spread((gap - graph)[within & (gap >= 0)])
    gap = np.where(orphan, np.maximum(gap, 0), np.where(follows & ~orphan, graph, own))
    # If the steps are repeated, the very first op follows the last one.
    gap = np.where(previous >= 0, gap, np.where(orphan, 0, np.minimum(gap, np.maximum(start, 0))))
    begins = roots(launch, previous, beside, follows)
    first = first_of(follows)
    later = learn([device.name[row].astype(np.int64)], begins, start - start[first], 0)
    latency[begins], gap[begins] = later[begins], (gap[first] + later)[begins]

    engine = np.full(len(row), -1, dtype=np.int32)
    for direction, number in _ENGINES.items():
        engine[device.direction[row] == direction] = number
    nth = np.searchsorted(unique(timeline.streams.device), timeline.streams.device)[stream]
    engine = np.where(engine >= 0, engine + len(_ENGINES) * nth, -1).astype(np.int32)
    alone = len(_ENGINES) * len(unique(timeline.streams.device)) + nth
    engine = np.where(_take_turns(timeline, row), alone, engine).astype(np.int32)
    engine = _in_order(engine, start)
    return Queued(
        row,
        launch,
        begun,
        orphan,
        follows,
        previous,
        previous_end,
        stream,
        on,
        start,
        end,
        engine,
        issued,
        blocks,
        latency,
        gap,
        begins,
        beside,
        slack,
        skew_ns,
    )


def _take_turns(timeline: Timeline, row: I64) -> Bool:
    """Returns a mask of the large kernels that must not overlap in the replay.

    If a device ran large kernels on several streams in the recording, but not at the same time, all large kernels of
    this device are in the mask. Whether the kernels could overlap is unknown: with a slow host, they may never have
    been queued at the same time. Kernels that overlapped in the recording may overlap in the replay.
    """
    device = timeline.device
    large = (device.kind == DeviceKind.KERNEL) & (device.end - device.start >= _LARGE_NS)
    large &= ~is_communication(timeline)
    turns = np.zeros(len(device), dtype=np.bool_)
    for _, mine in groups(np.where(large, device.device, -1)):
        mine = mine[large[mine]]
        if len(unique(device.stream[mine])) > 1:
            start, end = union(device.start[mine], device.end[mine])
            length = int((device.end - device.start)[mine].sum())
            turns[mine] = length - int((end - start).sum()) < _TOGETHER * length
    return turns[row]


def _in_order(engine: I32, start: I64) -> I32:
    """Sets the engine to -1 for each op A that started later than an op B, although B was launched
    after A.

    An engine is a part of the device, such as a copy engine, that runs its ops in the order of
    their launches. It would have run A before B, so A did not use an engine.
    """
    result = engine.copy()
    for number, mine in groups(engine):
        if number >= 0:
            earliest_after = np.minimum.accumulate(start[mine][::-1])[::-1]
            result[mine[start[mine] > earliest_after]] = -1
    return result


def _blocks(timeline: Timeline, launch: I64, row: I64, skew_ns: int) -> Bool:
    """Returns a mask of the ops whose call returned only when the op was done.

    Usually only copies are in the mask. If launches block, ops of every kind can be in it. A call that stages its data
    may return slightly before the recorded end of the copy. Such a call counts as blocking too.
    """
    host, device = timeline.host, timeline.device
    call = np.maximum(launch, 0)
    if timeline.meta.launches_block:
        done: Bool = (launch >= 0) & (host.end[call] >= device.end[row] - skew_ns)
        return done
    slack = np.maximum(np.minimum((device.end - device.start)[row] // 2, _STAGED_NS), skew_ns)
    may = is_synchronous(timeline, call) | (device.host_memory[row] == HostMemory.PAGEABLE)
    chosen: Bool = (
        (launch >= 0) & (host.kind[call] == HostKind.COPY) & may & (host.end[call] >= device.end[row] - slack)
    )
    return chosen


def engines(timeline: Timeline) -> int:
    """Returns the number of engines of all devices. An engine is a part of a device that runs its
    ops in the order in which they were launched.

    A device has one engine for each of two copy directions, and one engine for kernels that must
    not overlap.
    """
    return (len(_ENGINES) + 1) * len(unique(timeline.streams.device))


def _launches(timeline: Timeline) -> I32:
    """Returns, for each device op, its launch call, as an index into `timeline.host`.

    If the trace lacks this call, the result is the call of the previous op on the same stream. If that stream has no
    earlier op with a known call, the result is -1.
    """
    launch = timeline.device.launch.copy()
    kind = timeline.host.kind[np.maximum(launch, 0)]
    launch[(kind < HostKind.LAUNCH) | (kind > HostKind.MEMSET)] = -1  # processes in one file share ids
    launch[timeline.device.start < timeline.host.start[np.maximum(launch, 0)] - _ANOTHERS_NS] = -1
    for _, mine in groups(timeline.device.stream):
        known = np.where(launch[mine] >= 0, np.arange(len(mine)), -1)
        last = np.maximum.accumulate(known)
        launch[mine] = np.where(last >= 0, launch[mine[np.maximum(last, 0)]], -1)
    return launch


def _begun(timeline: Timeline, launch: I64) -> I64:
    """Returns the start time of each device op's launch, in ns.

    A launch before the recording gets a time before all events.
    """
    start = timeline.device.start
    begun = np.where(launch >= 0, timeline.host.start[np.maximum(launch, 0)], start)
    queued = replace(timeline.device, launch=launch.astype(np.int32)).heads(of_unknown=timeline.meta.sound)
    begun[queued] = min(int(timeline.host.start.min()), int(start.min(initial=0))) - 1
    return begun


def _sort(timeline: Timeline) -> I64:
    """Returns a number below 63 for each device op. It stands for the op's kind, the copy
    direction, and the kind of host memory.
    """
    device = timeline.device
    sort: I64 = (device.kind.astype(np.int64) * 6 + device.direction) * 3 + device.host_memory
    return sort


def _after_event(timeline: Timeline, launch: I64, held: Bool, stream: I32) -> Bool:
    """Returns, for each op, whether its stream was told to wait for an event just before the op: after the stream's
    previous launch, and before the op's launch.
    """
    result = np.zeros(len(launch), dtype=np.bool_)
    waits = timeline.waits
    chosen = np.flatnonzero(held[waits.host])
    by_stream = dict(groups(waits.stream[chosen]))
    start = timeline.host.start
    for number, mine in groups(stream):
        if number not in by_stream:
            continue
        times = np.sort(start[waits.host[chosen[by_stream[number]]]])
        calls = start[np.maximum(launch[mine], 0)]
        seen = np.searchsorted(times, calls)
        result[mine] = np.diff(seen, prepend=0) > 0
    return result
