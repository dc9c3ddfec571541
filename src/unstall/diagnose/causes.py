"""Why a device idled: each idle interval gets one cause, and one host event to blame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diagnose.accounts import CAUSE, Gaps
from unstall.diagnose.activity import HostActivity
from unstall.result import IDLE_CAUSES
from unstall.timeline.ancestry import first_reaching, nearest
from unstall.timeline.columns import I8, I32, I64, Bool, HostKind, Timeline, WaitKind
from unstall.timeline.grouping import groups
from unstall.timeline.intervals import Intervals

_SKEW_NS = 10_000  # host and device clocks are aligned to within this
_MOST_CANDIDATES = 16  # events to try per interval, the latest to start first


def explain_gaps(
    timeline: Timeline, ops: Bool, busy: Intervals, activity: HostActivity, window: tuple[int, int]
) -> Gaps:
    """Give each idle interval one cause: why did the op that ends it start so late?

    If the op was launched before the device ran out of work, an event of another stream held it, or else latency. If
    not, the host was late, and the cause is what the host spent the largest share of the interval on. Dispatching
    after a wait that emptied the queue counts as that wait. All work of a thread that only fetches batches counts as
    data loading.
    """
    idle = busy.gaps(*window)
    end = _find_ends(timeline, ops, idle, activity.feeding)
    doings = _doings(activity)
    cause = _shares(activity, doings, idle, end).argmax(axis=0).astype(np.int8)
    cause[end.queued] = np.where(end.by_event[end.queued], CAUSE["event"], CAUSE["latency"])
    # If no op follows, this device is done, but the others may not be.
    elsewhere = Intervals.union(timeline.device.start[~ops], timeline.device.end[~ops])
    others_work = 2 * elsewhere.covered(idle.start, idle.end) >= idle.end - idle.start
    cause[(end.op < 0) & others_work] = CAUSE["event"]
    return Gaps(idle.start, idle.end, cause, end.op, _culprits(timeline, activity, doings, idle, end, cause))


@dataclass(frozen=True, eq=False, slots=True)
class _Ends:
    """How each idle interval ends, and how far the host had come by then."""

    op: I32  # device row of the op that ends the interval, or -1
    launch: I32  # host row of its launch, or -1
    begun: I64  # when the launch began, clipped to the interval; `launched` is when it ended
    launched: I64
    begun_at: I64  # … and begun, wherever that is
    queued: Bool  # the op was launched before the device ran out of work
    by_event: Bool  # its stream had been told to wait for an event
    fed: Bool  # the launching thread only fetches batches


def _find_ends(timeline: Timeline, ops: Bool, idle: Intervals, feeding: I64) -> _Ends:
    host, device = timeline.host, timeline.device
    rows = np.flatnonzero(ops)
    op = _ending_op(device.start[rows], rows, idle)
    launch = np.where(op >= 0, device.launch[np.maximum(op, 0)], -1) if len(device) else op
    begun, ended = (
        np.where(launch >= 0, times[np.maximum(launch, 0)], idle.end) if len(host) else idle.end
        for times in (host.start, host.end)
    )
    inner = _inside_one_launch(timeline, op, rows)
    return _Ends(
        op=op,
        launch=launch.astype(np.int32),
        begun=np.clip(begun, idle.start, idle.end),
        launched=np.clip(ended, idle.start, idle.end),
        begun_at=begun,
        queued=(launch >= 0) & ((ended <= idle.start) | (inner & (begun <= idle.start))),
        by_event=_held_by_event(timeline, op, launch),
        fed=(launch >= 0) & np.isin(host.thread[np.maximum(launch, 0)], feeding) if len(host) else launch >= 0,
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Doing:
    """An activity that may have kept the host from launching, and the cause of idle time that it stands for."""

    cause: str
    spans: Intervals
    rows: I64 | I32  # the host rows to blame


def _doings(activity: HostActivity) -> tuple[_Doing, ...]:
    """Activities in order of precedence: a moment spent in two of them counts for the first."""
    waits = activity.waits
    return (
        _Doing(
            "sync",
            Intervals.union(waits.start[~waits.for_copy], waits.end[~waits.for_copy]),
            waits.row[~waits.for_copy],
        ),
        _Doing(
            "copy", Intervals.union(waits.start[waits.for_copy], waits.end[waits.for_copy]), waits.row[waits.for_copy]
        ),
        _Doing("input", activity.input, activity.input_rows),
        _Doing("allocator", activity.allocator, activity.allocator_rows),
        _Doing("startup", activity.startup, activity.startup_rows),
        _Doing("comm", activity.comm, activity.comm_rows),
        _Doing("python", activity.python, activity.asleep_rows),  # elsewhere the frame that ran is to blame
    )


def _shares(activity: HostActivity, doings: tuple[_Doing, ...], idle: Intervals, end: _Ends) -> I64:
    """ns of each idle interval by cause, one row per entry of IDLE_CAUSES. Time after the launch counts for none."""
    shares = np.zeros((len(IDLE_CAUSES), len(idle)), dtype=np.int64)
    waits = activity.waits
    blamed = Intervals.none()
    for doing in doings:
        own = doing.spans - blamed
        blamed |= own
        # A launch can itself load data, allocate or block (as a copy), but it cannot wait for earlier work.
        until = end.begun if doing.cause == "sync" else end.launched
        shares[CAUSE[doing.cause]] = own.covered(idle.start, until)
    shares[CAUSE["event"]] = np.where(end.by_event, idle.end - end.launched, 0)

    dispatching = idle.end - idle.start - shares.sum(axis=0)
    drain = _draining_wait(activity, idle.start, end.begun_at)
    for_copy = waits.for_copy[np.maximum(drain, 0)] if len(waits) else drain >= 0
    late = np.where(end.fed, CAUSE["input"], CAUSE["launch"])
    to = np.where(drain < 0, late, np.where(for_copy, CAUSE["copy"], CAUSE["sync"]))
    np.add.at(shares, (to, np.arange(len(idle))), dispatching)
    shares[CAUSE["input"], end.fed] += shares[CAUSE["python"], end.fed]
    shares[CAUSE["python"], end.fed] = 0
    return shares


def _culprits(
    timeline: Timeline, activity: HostActivity, doings: tuple[_Doing, ...], idle: Intervals, end: _Ends, cause: I8
) -> I32:
    """The host row to blame for each interval: the wait that emptied the queue, the longest activity, or the launch."""
    host = timeline.host
    culprit = end.launch.copy()
    for doing in doings:
        mine = np.flatnonzero(cause == CAUSE[doing.cause])
        rows = doing.rows[np.argsort(host.start[doing.rows], kind="stable")]
        longest = _longest_within(host.start[rows], host.end[rows], idle.start[mine], idle.end[mine])
        culprit[mine[longest >= 0]] = rows[longest[longest >= 0]]
        if doing.cause == "input" and len(rows):  # work on a batch after it was fetched counts as its loading
            after = mine[(longest < 0) & end.fed[mine]]
            culprit[after] = rows[np.maximum(np.searchsorted(host.start[rows], end.begun_at[after]) - 1, 0)]
    drain = _draining_wait(activity, idle.start, end.begun_at)
    drained = np.flatnonzero((drain >= 0) & ((cause == CAUSE["sync"]) | (cause == CAUSE["copy"])))
    culprit[drained] = activity.waits.row[drain[drained]]
    mine = np.flatnonzero(cause == CAUSE["python"])
    asleep, python = (spans.covered(idle.start[mine], idle.end[mine]) for spans in (activity.asleep, activity.python))
    awake = mine[2 * asleep < np.maximum(python, 1)]
    culprit[awake] = end.launch[awake]
    if timeline.meta.frames_at_calls:  # known only at calls: too coarse to blame
        awake = awake[culprit[awake] < 0]
    culprit[awake] = _running_frame(timeline, activity, idle.start[awake], idle.end[awake], culprit[awake])
    return culprit


def _ending_op(starts: I64, rows: I64, idle: Intervals) -> I32:
    """The device row of the first op that starts when each gap ends, or -1 at the window's end."""
    if not len(rows):
        return np.full(len(idle), -1, dtype=np.int32)
    at = np.minimum(np.searchsorted(starts, idle.end), len(rows) - 1)
    return np.where(starts[at] == idle.end, rows[at], -1).astype(np.int32)


def _draining_wait(activity: HostActivity, dry: I64, begun: I64) -> I64:
    """The wait during which the device ran out of work, and after which the host launched again; -1 if none."""
    waits = activity.waits
    if not len(waits):
        return np.full(len(dry), -1, dtype=np.int64)
    at = np.searchsorted(waits.start, np.minimum(dry + _SKEW_NS, begun - 1), side="right") - 1
    drained = (at >= 0) & (waits.end[np.maximum(at, 0)] >= dry - _SKEW_NS)
    return np.where(drained, at, -1)


def _inside_one_launch(timeline: Timeline, op: I32, rows: I64) -> Bool:
    """Returns whether the op that ends each gap is inside a graph: not the first op of its launch."""
    launch = timeline.device.launch
    first = np.full(len(timeline.host) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, launch[rows], rows)
    return (op >= 0) & (first[launch[np.maximum(op, 0)]] < op) if len(launch) else op >= 0


def _held_by_event(timeline: Timeline, op: I32, launch: I32) -> Bool:
    """Returns whether each op's stream was made to wait for an event between its previous launch and this one."""
    waits, host, device = timeline.waits, timeline.host, timeline.device
    held = np.zeros(len(op), dtype=np.bool_)
    told = np.flatnonzero((waits.kind == WaitKind.STREAM_EVENT) & (waits.stream >= 0))
    told_on = dict(groups(waits.stream[told]))
    launched = np.flatnonzero(device.launch >= 0)
    launched_on = dict(groups(device.stream[launched]))
    asking = np.flatnonzero((op >= 0) & (launch >= 0))
    for stream, mine in groups(device.stream[op[asking]]):
        if stream not in told_on:
            continue
        asked = asking[mine]
        wait_times = np.sort(host.start[waits.host[told[told_on[stream]]]])
        launch_times = np.unique(host.start[device.launch[launched[launched_on[stream]]]])
        this = host.start[launch[asked]]
        previous = np.searchsorted(launch_times, this, side="left") - 1
        since = np.where(previous >= 0, launch_times[np.maximum(previous, 0)], np.iinfo(np.int64).min)
        last = np.searchsorted(wait_times, this, side="left") - 1
        held[asked] = (last >= 0) & (wait_times[np.maximum(last, 0)] > since)
    return held


def _running_frame(timeline: Timeline, activity: HostActivity, low: I64, high: I64, launch: I32) -> I32:
    """Returns the Python frame that ran in the middle of each interval's longest stretch of Python.

    It belongs to the thread that launched next, or else to the launching thread with most frames. If there is none, the
    result is `launch`.
    """
    host, python = timeline.host, activity.python
    launching = np.unique(host.thread[timeline.device.launch[timeline.device.launch >= 0]])
    is_frame = (host.kind == HostKind.PYTHON) & np.isin(host.thread, launching)
    is_frame[activity.asleep_rows] = False
    frames = np.flatnonzero(is_frame)
    if not (len(frames) and len(low)):
        return launch
    stretch = np.maximum(_longest_within(python.start, python.end, low, high), 0)
    middle = (np.maximum(python.start[stretch], low) + np.minimum(python.end[stretch], high)) // 2
    frames_of = dict(groups(host.thread[frames]))
    busiest = int(np.bincount(host.thread[frames]).argmax())
    thread = np.where(launch >= 0, host.thread[np.maximum(launch, 0)], busiest)
    result = launch.copy()
    for number, mine in groups(thread):
        rows = frames[frames_of.get(number, frames_of[busiest])]
        at = np.searchsorted(host.start[rows], middle[mine], side="right") - 1
        last = np.where(at >= 0, rows[np.maximum(at, 0)], -1).astype(np.int32)
        enclosing = first_reaching(host.parent, host.end, last, middle[mine])
        frame = np.where(enclosing >= 0, nearest(host.parent, is_frame)[enclosing], -1)
        result[mine] = np.where(frame >= 0, frame, launch[mine])
    return result


def _longest_within(start: I64, end: I64, low: I64, high: I64) -> I64:
    """Returns the index of the interval that covers most of each window [low, high), or -1. Intervals are sorted by
    start."""
    longest = np.full(len(low), -1, dtype=np.int64)
    most = np.zeros(len(low), dtype=np.int64)
    beyond = np.searchsorted(start, high, side="left")
    for back in range(1, min(_MOST_CANDIDATES, len(start)) + 1):
        at = np.maximum(beyond - back, 0)
        overlap = np.minimum(end[at], high) - np.maximum(start[at], low)
        better = (beyond >= back) & (overlap > most)
        longest[better], most[better] = at[better], overlap[better]
    return longest
