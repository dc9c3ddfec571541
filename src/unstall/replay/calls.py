"""Makes the instructions of calls that launch ops, and of calls that free device memory. Calls that
free memory wait for the whole device.
"""

from __future__ import annotations

import numpy as np

from unstall.replay.branches import first_of
from unstall.replay.delays import learn
from unstall.replay.device import Queued
from unstall.replay.program import QUEUE_CAPACITY, Code
from unstall.replay.unordered import InstructionRows, rows_of
from unstall.replay.waits import drained
from unstall.timeline.columns import Bool, HostKind, Timeline
from unstall.timeline.grouping import groups

LAUNCH_NS = 5_000
"""Length in ns of a launch call in a recording, if the call does not wait for room in the launch
queue (H200, CUDA 13).
"""

_SURELY_ROOM = 256  # launches outstanding
_FEW = 8  # long calls; if there are more, that most of them have one depth tells that they waited for room
_AS_FULL = 2  # launches by which a full queue may seem less full
_PROMPT_NS = 50_000  # from the end of the op that made room to the return of the call that waited for it
_LONG_CALL = 5  # times the usual length: such a call waited for room in the launch queue


def find_capacity(timeline: Timeline, queue: Queued) -> tuple[int, Bool]:
    """Returns `(capacity, full)`: how many launches the launch queue of a stream can hold, and, for
    each op in `queue`, whether its launch waited for room in this queue.
    """
    host = timeline.host
    full = np.zeros(len(queue), dtype=np.bool_)
    capacity = QUEUE_CAPACITY
    call = np.maximum(queue.launch, 0)
    length = (host.end - host.start)[call]
    for _, mine in groups(queue.stream):
        mine = mine[~queue.follows[mine]]
        done = np.maximum.accumulate(queue.end[mine])
        # Launches before the recording fill the queue as well.
        known = np.flatnonzero(queue.launch[mine] >= 0)
        if len(known) <= _SURELY_ROOM:
            continue
        mine = mine[known]
        over = np.searchsorted(done, host.end[call[mine]], side="right")
        depth = known - over
        # If the device is much slower than the host, most calls wait for room, but never those of a short queue.
        usual = np.median(length[mine][depth <= _SURELY_ROOM]) if (depth <= _SURELY_ROOM).any() else np.median(length)
        long = (length[mine] > _LONG_CALL * usual) & (depth > _SURELY_ROOM)
        if long.sum() <= _FEW:
            # A host that merely paused finds its queue shorter afterwards. One that waited for room finds it as full as
            # it ever gets, and an op that has just ended.
            made_room = host.end[call[mine]] - done[np.maximum(over - 1, 0)]
            waited = long & (depth >= depth.max() - _AS_FULL) & (made_room <= np.minimum(_PROMPT_NS, length[mine]))
            if waited.any():
                seen = int(depth[waited].max()) + 1
                capacity = min(capacity, seen) if capacity != QUEUE_CAPACITY else seen
                full[mine[waited]] = True
        else:
            deepest = int(np.median(depth[long]))
            stuck = long & (np.abs(depth - deepest) <= deepest // 50 + 2)
            if stuck.sum() > 0.5 * long.sum():
                seen = max(deepest, _SURELY_ROOM) + 1  # before this one
                capacity = min(capacity, seen) if capacity != QUEUE_CAPACITY else seen
                full[mine[long]] = True
    return capacity, full


def launches(timeline: Timeline, queue: Queued, full: Bool) -> list[InstructionRows]:
    """Returns the instructions of every launch, for the program of a run.

    A launch that blocks the host has a second instruction for the wait. If the ops of a launch may
    begin before the call returns, the launch has a second instruction for the rest of the call.

    Args:
        timeline: The run.
        queue: The device ops, in launch order.
        full: For each op, whether its launch waited for room in the launch queue.
    """
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
    begins = np.flatnonzero(queue.begins)
    queue.latency[begins] += queue.latency[first_of(queue.follows)[begins]]
    launches = rows_of(timeline, calls, Code.LAUNCH, stream=queue.on[first], call=own, ops=counts)
    rows = calls[blocks]
    waits = rows_of(
        timeline,
        rows,
        Code.SYNC_STREAM,
        stream=queue.stream[first[blocks]],
        latency=host.end[rows] - queue.end[last[blocks]],
    )
    rest = issued & ~blocks
    waits_not = rows_of(timeline, calls[rest], Code.CALL, call=(length - own)[rest])
    lost = np.flatnonzero(queue.launch < 0)
    none = np.full(len(lost), -1)
    orphans = rows_of(timeline, none, Code.LAUNCH, time=queue.begun[lost], stream=queue.stream[lost], ops=1)
    return [orphans, launches, waits, waits_not]  # in the order of the queue if they begin together


def given_back(timeline: Timeline, queue: Queued) -> list[InstructionRows]:
    """Returns the instructions, for the program of a run, of those calls that freed device memory
    and waited for the device.

    A call is assumed to have waited if the device became idle during the call. Calls that allocate
    memory do not wait: with 18 ms of work in the queue, cudaMalloc of 512 B to 8 GiB took 0.1 to
    0.4 ms, but cudaFree took 18 ms (H200, CUDA 13: `benchmarks/driver_waits.py`).
    """
    host = timeline.host
    rows = np.flatnonzero(host.kind == HostKind.FREE)
    done, which = drained(timeline, queue, host.start[rows], host.end[rows])
    ran_dry = (done > host.start[rows]) & (done <= host.end[rows])
    rows, done = rows[ran_dry], done[ran_dry]
    return [
        rows_of(timeline, rows, Code.SYNC_DEVICE, stream=which[ran_dry]),
        rows_of(timeline, rows, Code.CALL, call=host.end[rows] - done),
    ]
