"""Computes how far the host runs ahead of the device: how many device ops are launched and not yet
finished. Finds the launches that a full launch queue blocked.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, Timeline
from unstall.timeline.grouping import groups

_DEEP = 500  # queues hold about a thousand launches (measured on an H200: 1021)
_FULL = 0.9  # of the deepest queue: a full queue has the same depth at each launch
_SLOW = 2  # times the usual launch
_LEAST = 3  # launches; fewer may have been slow by chance


def depth_at_launch(timeline: Timeline) -> tuple[I64, I32]:
    """Returns `(calls, depth)`: the calls that launch device ops, sorted by start time, as indices
    of rows of `timeline.host`; the depth of the launch queue when each call begins.

    The depth is the number of launched ops that the call's device has not finished yet. All ops of
    a graph count as one op, because a graph takes one place in the launch queue.
    """
    calls, start, done, device = _launched(timeline)
    depth = np.zeros(len(calls), dtype=np.int32)
    for _, mine in groups(device):
        mine = mine[np.argsort(start[mine], kind="stable")]
        finished = np.searchsorted(np.sort(done[mine]), start[mine], side="right")
        depth[mine] = np.maximum(np.arange(len(mine)) - finished, 0)
    order = np.argsort(start, kind="stable")
    return calls[order], depth[order]


def depth_over_time(timeline: Timeline) -> tuple[I64, I32]:
    """Returns `(times, depth)`: times in ns, ascending; the number of launched ops that the device
    has not finished, from each of these times on. All ops of a graph count as one op.
    """
    _, begun, done, _ = _launched(timeline)
    times = np.concatenate((begun, np.maximum(done, begun)))
    change = np.concatenate((np.ones(len(begun), np.int32), np.full(len(done), -1, np.int32)))
    order = np.argsort(times, kind="stable")
    times, depth = times[order], np.cumsum(change[order], dtype=np.int32)
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, np.bool_)
    return times[last], depth[last]


def blocked_launches(depth: I32, length: I64) -> tuple[I64, I64]:
    """Returns `(blocked, wait)`: the indices of the launches that a full launch queue blocked; how
    long each of them waited, in ns.

    A blocked call takes longer than a usual one. The wait is the difference. The usual length is
    the median of the launches that found room in the queue.

    Args:
        depth: For each launch, how many ops were in the queue when its call began.
        length: For each launch, the length of its call in ns.
    """
    none = np.zeros(0, np.int64)
    deep = depth >= _DEEP
    if not deep.any():
        return none, none
    usual = int(np.median(length[~deep] if (~deep).any() else length))
    blocked = np.flatnonzero((depth >= max(_DEEP, _FULL * int(depth.max()))) & (length > _SLOW * usual))
    return (blocked, length[blocked] - usual) if len(blocked) >= _LEAST else (none, none)


def _launched(timeline: Timeline) -> tuple[I64, I64, I64, I32]:
    """Returns `(calls, start, done, device)` for the calls that launched device ops.

    `calls` has their indices as rows of `timeline.host`. `start` has the time when each call
    begins, and `done` has the time when the call's last op ends, in ns. `device` has the device of
    each call.
    """
    device = timeline.device
    known = np.flatnonzero(device.launch >= 0)
    calls, first, which = np.unique(device.launch[known], return_index=True, return_inverse=True)
    done = np.full(len(calls), np.iinfo(np.int64).min)
    np.maximum.at(done, which, device.end[known])
    return calls.astype(np.int64), timeline.host.start[calls], done, device.device[known[first]]
