"""Device ops in the order of their launches, each with the delays that it has when one thing holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unstall.locate.kinds import is_collective
from unstall.replay.branches import by_stream, ended_last, first_of, launched_on, roots, spread
from unstall.replay.delays import learn
from unstall.timeline.columns import I32, I64, Bool, CopyDirection, DeviceKind, HostKind, HostMemory, Timeline
from unstall.timeline.grouping import by_text, groups, union

LATENCY_NS = 2_000
"""From the end of a launching call to the start of its op on an idle stream: H200, CUDA 13."""
GAP_NS = 1_000
"""Between two ops of one stream, the second long queued: H200, CUDA 13."""

_STAGED_AT_ONCE_BYTES = 64 << 10  # a smaller upload goes into the launch queue itself: CUDA's API sync behaviour
_COPY_SKEW_NS = 50_000  # a call that staged a copy may return before the copy seems done
_CLOCK_SKEW_NS = 1_000_000  # an op that began so long before its call has another's
_LARGE_NS = 20_000  # a kernel that fills the device rather than fitting beside others
_TOGETHER = 0.01  # of kernels' time: less is the skew of one after the other
_LATE_NS = 1_000  # after the op before it, later than its gap explains: it waited for its launch
_QUEUED_NS = 5_000  # launched so long before its turn that it surely stood in the queue
_BUSY_NS = 100_000  # an op so late had to wait for work that is not in the file
_LONG_AGO = np.iinfo(np.int64).min // 2
_ENGINES = {CopyDirection.HOST_TO_DEVICE: 0, CopyDirection.DEVICE_TO_HOST: 1}


@dataclass(frozen=True, eq=False, slots=True)
class Queued:
    """Device ops, in the order of launches. `row` is that of the timeline's device ops."""

    row: I64
    launch: I64  # host row of the call; -1 where none is known for it or for an earlier op of its stream
    begun: I64  # when its launch began
    orphan: Bool  # has no call of its own in the file
    follows: Bool  # not the first op of its launch
    previous: I64  # index of the op before it on its stream, or -1
    previous_end: I64  # the latest end of those before it on its stream
    stream: I32
    on: I32  # that its call was told to use; a graph's ops may run on others
    start: I64
    end: I64
    engine: I32
    issued: Bool  # arrives `latency` after its call began, not after it returned
    blocks: Bool  # its call returned when it was done
    latency: I64
    gap: I64
    begins: Bool  # begins a branch with the graph itself, beside its first op
    beside: I64  # of the ops of its launch on other streams, the one that ended last before it began, or -1
    slack: int  # how much later than its gap says an op of a graph may begin for no other cause

    def __len__(self) -> int:
        return len(self.row)


def queue_up(timeline: Timeline, held: Bool) -> Queued:
    """`held` says which host rows tell a stream to wait for an event: what is launched after them shows no delay."""
    host, device = timeline.host, timeline.device
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
    blocks = _blocks(timeline, launch, row) & ~follows
    graphs = (kind == HostKind.GRAPH_LAUNCH) & (launch >= 0)
    issued = blocks | graphs
    large = device.bytes[row] > _STAGED_AT_ONCE_BYTES
    like = ((kind * 64 + sort) * 2 + large) * 2 + issued
    delay = np.where(issued, start - called, start - returned)
    gap = start - previous_end
    free |= apart & graphs & (previous_end <= returned) & (gap > GAP_NS + _LATE_NS)
    likes = [like * len(timeline.streams) + stream, like, kind * 2 + issued]
    after_call = learn(likes, free & ~issued & (delay < _BUSY_NS), delay, LATENCY_NS)
    latency = np.where(issued, learn(likes, free & issued, delay, LATENCY_NS), after_call)
    # What such a call does before its op begins is the host's work, and as long as it was.
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
    if len(np.unique(stream[lost])) > 1:  # the branches of one graph, maybe: then the op waited for all of them
        queued &= ~lost[previous]
    pair = before * 64 + sort
    own = learn([pair * len(timeline.streams) + stream, pair, sort], queued & (gap < _BUSY_NS), gap, GAP_NS)
    graph = learn([launch * 4096 + pair, pair], within & (gap >= 0), gap, GAP_NS)
    slack = spread((gap - graph)[within & (gap >= 0)])
    gap = np.where(orphan, np.maximum(gap, 0), np.where(follows & ~orphan, graph, own))
    # Where the steps come again, the first op of all follows the last.
    gap = np.where(previous >= 0, gap, np.where(orphan, 0, np.minimum(gap, np.maximum(start, 0))))
    begins = roots(launch, previous, beside, follows)
    first = first_of(follows)
    later = learn([device.name[row].astype(np.int64)], begins, start - start[first], 0)
    latency[begins], gap[begins] = later[begins], (gap[first] + later)[begins]

    engine = np.full(len(row), -1, dtype=np.int32)
    for direction, number in _ENGINES.items():
        engine[device.direction[row] == direction] = number
    nth = np.searchsorted(np.unique(timeline.streams.device), timeline.streams.device)[stream]
    engine = np.where(engine >= 0, engine + len(_ENGINES) * nth, -1).astype(np.int32)
    alone = len(_ENGINES) * len(np.unique(timeline.streams.device)) + nth
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
    )


def _take_turns(timeline: Timeline, row: I64) -> Bool:
    """Which ops are large kernels of a device on which those of several streams never ran beside each other.

    Whether they could, nobody has seen: where the host was slow they may never have met. Each alone, they are not
    made to overlap; those that did overlap go on to.
    """
    device = timeline.device
    large = (device.kind == DeviceKind.KERNEL) & (device.end - device.start >= _LARGE_NS)
    large &= ~is_collective(timeline.strings, device.name)
    turns = np.zeros(len(device), dtype=np.bool_)
    for _, mine in groups(np.where(large, device.device, -1)):
        mine = mine[large[mine]]
        if len(np.unique(device.stream[mine])) > 1:
            start, end = union(device.start[mine], device.end[mine])
            length = int((device.end - device.start)[mine].sum())
            turns[mine] = length - int((end - start).sum()) < _TOGETHER * length
    return turns[row]


def _in_order(engine: I32, start: I64) -> I32:
    """Without the copies that one launched later overtook: an engine serves its streams in the order of launches."""
    result = engine.copy()
    for number, mine in groups(engine):
        if number >= 0:
            earliest_after = np.minimum.accumulate(start[mine][::-1])[::-1]
            result[mine[start[mine] > earliest_after]] = -1
    return result


def _blocks(timeline: Timeline, launch: I64, row: I64) -> Bool:
    """Which ops are copies whose call returned only when they were done, give or take what staging hides."""
    host, device = timeline.host, timeline.device
    call = np.maximum(launch, 0)
    slack = np.minimum((device.end - device.start)[row] // 2, _COPY_SKEW_NS)
    may = by_text(host.name, lambda index: index >= 0 and "Async" not in timeline.strings[index]).astype(np.bool_)[call]
    may |= device.host_memory[row] == HostMemory.PAGEABLE
    chosen: Bool = (
        (launch >= 0) & (host.kind[call] == HostKind.COPY) & may & (host.end[call] >= device.end[row] - slack)
    )
    return chosen


def engines(timeline: Timeline) -> int:
    """Copy engines each way, and one for the kernels of streams that take turns, of each device."""
    return (len(_ENGINES) + 1) * len(np.unique(timeline.streams.device))


def _launches(timeline: Timeline) -> I32:
    """Host row by device row; an op whose call is lost counts as put there by the call of the op before it."""
    launch = timeline.device.launch.copy()
    kind = timeline.host.kind[np.maximum(launch, 0)]
    launch[(kind < HostKind.LAUNCH) | (kind > HostKind.MEMSET)] = -1  # ids collide where several processes share a file
    launch[timeline.device.start < timeline.host.start[np.maximum(launch, 0)] - _CLOCK_SKEW_NS] = -1
    for _, mine in groups(timeline.device.stream):
        known = np.where(launch[mine] >= 0, np.arange(len(mine)), -1)
        last = np.maximum.accumulate(known)
        launch[mine] = np.where(last >= 0, launch[mine[np.maximum(last, 0)]], -1)
    return launch


def _begun(timeline: Timeline, launch: I64) -> I64:
    """By device row: when its launch began. What had been launched before the recording comes before any step of it."""
    start = timeline.device.start
    begun = np.where(launch >= 0, timeline.host.start[np.maximum(launch, 0)], start)
    queued = replace(timeline.device, launch=launch.astype(np.int32)).heads(of_unknown=timeline.meta.sound)
    begun[queued] = min(int(timeline.host.start.min()), int(start.min(initial=0))) - 1
    return begun


def _sort(timeline: Timeline) -> I64:
    """A number below 63 for what an op does."""
    device = timeline.device
    sort: I64 = (device.kind.astype(np.int64) * 6 + device.direction) * 3 + device.host_memory
    return sort


def _after_event(timeline: Timeline, launch: I64, held: Bool, stream: I32) -> Bool:
    """Whether the last thing told to an op's stream before it was to wait for an event."""
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
