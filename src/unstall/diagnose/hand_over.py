"""Finds when the device received the launch that ended an idle interval.

The host causes the idle time up to this moment.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.replay.device import LATENCY_NS
from unstall.timeline.columns import I32, I64, Bool, HostKind, Timeline, WaitKind
from unstall.timeline.grouping import groups
from unstall.timeline.intervals import Intervals

_LEAST_SEEN = 8  # launches on a dry device that show how long an op usually takes to start
_NEVER = np.iinfo(np.int64).max
_LONG_AGO = np.iinfo(np.int64).min


class HandOver(msgspec.Struct, frozen=True, eq=False):
    """How each idle interval of a device ends, and when the device received the launch that ended
    the interval.

    The attributes are columns with one element per interval, except `usual_ns`.

    Attributes:
        op: The op that ends the interval, as the index of a row of `timeline.device`; -1 if the
            interval ends with the steps.
        launch: The launch of the next op, as the index of a row of `timeline.host`; -1 if it is not
            known. If the interval ends with the steps, the next op comes after it.
        begun: When this launch began, in ns; limited to the interval.
        begun_at: When this launch began, in ns.
        had: When the device had a launch to work on, in ns; limited to the interval.
        by_event: Whether the next op's stream had been told to wait for an event.
        unknown: Whether the recording lacks what the device did from `had` on.
        nothing_follows: Whether no op comes after the interval.
        fed: Whether the launching thread only fetches batches.
        usual_ns: How long after its launch returned an op has started, unless something held it up,
            in ns.
    """

    op: I32
    launch: I32
    begun: I64
    begun_at: I64
    had: I64
    by_event: Bool
    unknown: Bool
    nothing_follows: Bool
    fed: Bool
    usual_ns: int

    def at(self, rows: I64) -> HandOver:
        """Returns a `HandOver` with some of the idle intervals. `rows` has the indices of these intervals."""
        return HandOver(
            self.op[rows],
            self.launch[rows],
            self.begun[rows],
            self.begun_at[rows],
            self.had[rows],
            self.by_event[rows],
            self.unknown[rows],
            self.nothing_follows[rows],
            self.fed[rows],
            self.usual_ns,
        )


def find_hand_overs(timeline: Timeline, ops: Bool, idle: Intervals, feeding: I64, skew_ns: int) -> HandOver:
    """Returns how each idle interval of a device ends.

    Args:
        timeline: The recorded run.
        ops: A mask over the rows of `timeline.device`: the ops that count.
        idle: The intervals in which none of these ops runs.
        feeding: The threads that only fetch batches from a DataLoader.
        skew_ns: How far apart the clocks of host and device may be, in ns.
    """
    host, device = timeline.host, timeline.device
    rows = np.flatnonzero(ops)
    at = np.searchsorted(device.start[rows], idle.end)
    follows = at < len(rows)
    following = np.full(len(idle), -1, dtype=np.int32)
    following[follows] = rows[at[follows]]
    op = following.copy()
    op[follows] = np.where(device.start[following[follows]] == idle.end[follows], following[follows], -1)
    launch = np.full(len(idle), -1, dtype=np.int32)
    launch[follows] = device.launch[following[follows]]
    known = launch >= 0
    begun, returned = idle.end.copy(), idle.end.copy()
    begun[known], returned[known] = host.start[launch[known]], host.end[launch[known]]

    # A later op of a graph needs no launch of its own, though the call may return after it has begun.
    under_way = known & (begun <= idle.start)
    under_way[known] &= _first_of_launch(timeline, rows)[launch[known]] < following[known]
    hidden = _hidden_work(timeline, rows, at, begun)
    had = np.minimum(np.where(under_way, idle.start, returned), hidden)
    lost = follows & ~known
    had[lost] = idle.start[lost]
    had = np.clip(had, idle.start, idle.end)
    by_event = _held_by_event(timeline, following, launch)
    thread = np.full(len(idle), -1, dtype=np.int64)
    thread[known] = host.thread[launch[known]]
    alone = known & (op >= 0) & ~by_event & (had > idle.start) & (hidden > idle.end)
    return HandOver(
        op=op,
        launch=launch,
        begun=np.clip(begun, idle.start, idle.end),
        begun_at=begun,
        had=had,
        by_event=by_event,
        unknown=lost | (hidden < idle.end),
        nothing_follows=~follows,
        fed=known & np.isin(thread, feeding),
        usual_ns=_usual(idle.end[alone] - returned[alone]) + skew_ns,
    )


def _usual(delay: I64) -> int:
    """Returns an upper limit for the time that an op usually takes to start after its launch has returned, in ns.

    `delay` has this time for each op that waits for nothing else. The limit is twice the lower quartile of `delay`. If
    `delay` has few values, the lower quartile measured on an H200 is used.
    """
    quartile = int(np.quantile(delay, 0.25)) if len(delay) >= _LEAST_SEEN else LATENCY_NS
    return 2 * max(quartile, LATENCY_NS)


def _first_of_launch(timeline: Timeline, rows: I64) -> I64:
    """Returns, for each row of `timeline.host`, the first of `rows` that this event launched.
    `rows` are indices of rows of `timeline.device`.
    """
    first = np.full(len(timeline.host) + 1, _NEVER, dtype=np.int64)
    np.minimum.at(first, timeline.device.launch[rows], rows)
    return first


def _hidden_work(timeline: Timeline, rows: I64, at: I64, begun: I64) -> I64:
    """Finds launched graphs that may have kept the device busy, although the recording lacks the
    graphs' ops.

    Returns one time for each idle interval, in ns: when the call that launched such a graph
    returned. If there is no such graph, the time is the largest int64.

    Args:
        timeline: The run.
        rows: The ops that count, as indices of rows of `timeline.device`.
        at: For each interval, the index in `rows` of the op that follows the interval.
        begun: For each interval, when the launch of this op began, in ns.
    """
    host, device = timeline.host, timeline.device
    graphs = np.flatnonzero(host.kind == HostKind.GRAPH_LAUNCH)
    graphs = graphs[~np.isin(graphs, device.launch)]
    launches = device.launch[rows]
    graphs = graphs[np.isin(host.thread[graphs], host.thread[launches[launches >= 0]])]
    never = np.full(len(at), _NEVER, dtype=np.int64)
    if not len(graphs):
        return never
    graphs = graphs[np.argsort(host.start[graphs], kind="stable")]
    launched = np.full(len(rows), _LONG_AGO, dtype=np.int64)
    known = device.launch[rows] >= 0
    launched[known] = host.start[device.launch[rows[known]]]
    latest = np.append(_LONG_AGO, np.maximum.accumulate(launched))[at]
    first = np.searchsorted(host.start[graphs], latest, side="right")
    found = first < len(graphs)
    graph = graphs[np.minimum(first, len(graphs) - 1)]
    return np.where(found & (host.start[graph] < begun), host.end[graph], never)


def _held_by_event(timeline: Timeline, op: I32, launch: I32) -> Bool:
    """Returns a mask over the ops: True if, just before the op, the op's stream has a command to
    wait for an event.

    Only an event wait between the stream's previous launch and the op's launch counts. `launch` has
    each op's launch, as the index of a row of `timeline.host`.
    """
    waits, host, device = timeline.waits, timeline.host, timeline.device
    held = np.zeros(len(op), dtype=np.bool_)
    told = np.flatnonzero((waits.kind == WaitKind.STREAM_EVENT) & (waits.stream >= 0))
    asking = np.flatnonzero((op >= 0) & (launch >= 0))
    streams = np.intersect1d(waits.stream[told], device.stream[op[asking]])
    told = told[np.isin(waits.stream[told], streams)]
    told_on = dict(groups(waits.stream[told]))
    launched = np.flatnonzero((device.launch >= 0) & np.isin(device.stream, streams))
    launched_on = dict(groups(device.stream[launched]))
    asking = asking[np.isin(device.stream[op[asking]], streams)]
    for stream, mine in groups(device.stream[op[asking]]):
        asked = asking[mine]
        wait_times = np.sort(host.start[waits.host[told[told_on[stream]]]])
        launch_times = np.unique(host.start[device.launch[launched[launched_on[stream]]]])
        this = host.start[launch[asked]]
        previous = np.searchsorted(launch_times, this, side="left") - 1
        since = np.where(previous >= 0, launch_times[np.maximum(previous, 0)], np.iinfo(np.int64).min)
        last = np.searchsorted(wait_times, this, side="left") - 1
        held[asked] = (last >= 0) & (wait_times[np.maximum(last, 0)] > since)
    return held
