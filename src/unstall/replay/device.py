"""Device ops in the order of their launches, each with the delays that it has when one thing holds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.grouping import groups
from unstall.replay.delays import learn
from unstall.timeline import I32, I64, Bool, CopyDirection, DeviceKind, HostKind, HostMemory, Timeline

LATENCY_NS = 2_000
"""From the end of a launching call to the start of its op on an idle stream: H200, CUDA 13."""
GAP_NS = 1_000
"""Between two ops of one stream, the second long queued: H200, CUDA 13."""

_QUEUED_NS = 5_000  # launched so long before its turn that it surely stood in the queue
_LONG_AGO = np.iinfo(np.int64).min // 2
_ENGINES = {CopyDirection.HOST_TO_DEVICE: 0, CopyDirection.DEVICE_TO_HOST: 1}


@dataclass(frozen=True, eq=False, slots=True)
class Queued:
    """Device ops, in the order of launches. `row` is that of the timeline's device ops."""

    row: I64
    launch: I64  # host row of the call; -1 where none is known for it or for an earlier op of its stream
    orphan: Bool  # has no call of its own in the file
    follows: Bool  # not the first op of its launch
    previous: I64  # index of the op before it on its stream, or -1
    previous_end: I64  # the latest end of those before it on its stream
    stream: I32
    start: I64
    end: I64
    engine: I32
    latency: I64
    gap: I64

    def __len__(self) -> int:
        return len(self.row)


def queue_up(timeline: Timeline, held: Bool) -> Queued:
    """`held` says which host rows tell a stream to wait for an event: what is launched after them shows no delay."""
    host, device = timeline.host, timeline.device
    launch = _launches(timeline)
    begun = np.where(launch >= 0, host.start[np.maximum(launch, 0)], device.start)
    row = np.lexsort((device.start, launch, begun))
    launch = launch[row].astype(np.int64)
    stream, start, end = device.stream[row], device.start[row], device.end[row]
    follows = np.append(False, (launch[1:] == launch[:-1]) & (launch[1:] >= 0)) if len(row) else np.zeros(0, np.bool_)
    previous = np.full(len(row), -1, dtype=np.int64)
    previous_end = np.full(len(row), _LONG_AGO, dtype=np.int64)
    for _, mine in groups(stream):
        previous[mine[1:]] = mine[:-1]
        previous_end[mine[1:]] = np.maximum.accumulate(end[mine])[:-1]
    orphan = device.launch[row] < 0

    call = np.maximum(launch, 0)
    called, returned = host.start[call], host.end[call]
    kind = host.kind[call].astype(np.int64)
    sort = _sort(timeline)[row]
    apart = (launch >= 0) & ~follows & ~orphan & ~_after_event(timeline, launch, held, stream)
    free = apart & (previous_end < called) & (start >= called)
    latency = learn([(kind * 64 + sort) * len(timeline.streams) + stream, kind * 64 + sort, kind], free, start - returned, LATENCY_NS)

    before = np.where(previous >= 0, sort[previous], 63)
    gap = start - previous_end
    within = follows & ~orphan
    queued = apart & (previous_end > returned + _QUEUED_NS) & (gap >= 0)
    pair = before * 64 + sort
    own = learn([pair * len(timeline.streams) + stream, pair, sort], queued & (gap < 100_000), gap, GAP_NS)
    graph = learn([launch * 4096 + pair, pair], within & (gap >= 0), gap, GAP_NS)
    gap = np.where(orphan, np.maximum(gap, 0), np.where(within, graph, own))
    gap[previous < 0] = 0

    engine = np.full(len(row), -1, dtype=np.int32)
    for direction, number in _ENGINES.items():
        engine[device.direction[row] == direction] = number
    engine = np.where(engine >= 0, engine + len(_ENGINES) * timeline.streams.device[stream], -1).astype(np.int32)
    return Queued(row, launch, orphan, follows, previous, previous_end, stream, start, end, engine, latency, gap)


def engines(timeline: Timeline) -> int:
    """How many copy engines there are."""
    return len(_ENGINES) * (int(timeline.streams.device.max(initial=-1)) + 1)


def _launches(timeline: Timeline) -> I32:
    """Host row by device row; an op whose call is lost counts as put there by the call of the op before it."""
    launch = timeline.device.launch.copy()
    for _, mine in groups(timeline.device.stream):
        known = np.where(launch[mine] >= 0, np.arange(len(mine)), -1)
        last = np.maximum.accumulate(known)
        launch[mine] = np.where(last >= 0, launch[mine[np.maximum(last, 0)]], -1)
    return launch


def _sort(timeline: Timeline) -> I64:
    """A number below 63 for what an op does."""
    device = timeline.device
    sort: I64 = (device.kind.astype(np.int64) * 6 + device.direction) * 3 + device.host_memory
    return sort


def _after_event(timeline: Timeline, launch: I64, held: Bool, stream: I32) -> Bool:
    """Whether the last thing told to an op's stream before it was to wait for an event: by stream, in order of calls."""
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
