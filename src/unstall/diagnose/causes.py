"""Finds why a device was idle.

Each idle interval has up to three causes. It ends with a launch. If it begins with a wait, the first
cause is that wait, for as long as the wait took at most. The second cause is for the rest of the time
until the call that launched has returned, and the third for the time after that.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.diagnose.accounts import CAUSE, Gaps
from unstall.diagnose.activity import HostActivity
from unstall.diagnose.hand_over import HandOver, find_hand_overs
from unstall.result import IDLE_CAUSES
from unstall.timeline.ancestry import first_reaching, nearest
from unstall.timeline.columns import I8, I32, I64, Bool, HostKind, Timeline
from unstall.timeline.grouping import groups, unique
from unstall.timeline.intervals import Intervals

_SKEW_NS = 10_000  # a wait that begins so soon after the device ran dry still counts as what emptied the queue
_MARGIN = 10  # a frame may begin and end this part of a stretch within it, and still stand for it
_MOST_CANDIDATES = 16  # events to try per interval, the latest to start first


def explain_gaps(
    timeline: Timeline, ops: Bool, busy: Intervals, activity: HostActivity, window: tuple[int, int]
) -> Gaps:
    """Finds up to three causes for each idle interval: why did the op at the end of the interval
    start so late?

    Before the call that launched this op returns, the host causes the idle time. If a wait emptied
    the launch queue, this wait is the first cause: it made the host late, by as long as it took
    with its operator at most. The cause of the rest is the activity that took most of the host's
    time. All work of a thread that only fetches batches counts as data loading. If no op follows
    the interval, the cause is other work of the host, or unknown.

    After the call has returned, the host does not cause the idle time. If the op waits for an event
    of another stream, the cause is this event. Otherwise, the cause is latency. The cause is
    unknown if the recording lacks the op's launch, or lacks the kernels of a graph that was
    launched.

    Each part of an interval becomes a row of the result, with its own cause. There is one exception.
    If the cause before the return is, for example, a wait or the loading of a batch, this is also
    the cause of the op's usual latency: without the wait or the loading, the device would not have
    run out of work.

    Args:
        timeline: The recorded run.
        ops: A mask over the rows of `timeline.device`: the ops that count.
        busy: The intervals in which one of these ops ran.
        activity: What the host did.
        window: The start and the end of the time in which to find idle intervals, in ns.
    """
    idle = busy.gaps(*window)
    end = find_hand_overs(timeline, ops, idle, activity.feeding, activity.skew_ns)
    skew = max(_SKEW_NS, activity.skew_ns)
    doings = _doings(activity)
    drain = _draining_wait(activity, idle.start, end.begun_at, skew)
    by_wait, waited_for, shares = _shares(activity, doings, idle, end, drain)
    late = shares.argmax(axis=0).astype(np.int8)
    alone = idle.start + by_wait >= end.had
    late[alone] = waited_for[alone]
    held = end.by_event & (idle.end - end.had > end.usual_ns)  # an event that was over holds nothing
    after = np.where(end.unknown, CAUSE["unknown"], np.where(held, CAUSE["event"], CAUSE["latency"]))
    # If no op follows, this device is done, but the others may not be.
    elsewhere = Intervals.union(timeline.device.start[~ops], timeline.device.end[~ops])
    others_work = (end.op < 0) & (2 * elsewhere.covered(idle.start, idle.end) >= idle.end - idle.start)
    late[others_work], after[others_work] = CAUSE["event"], CAUSE["event"]
    by_wait[others_work] = 0
    was_late = end.had > idle.start
    usual = was_late & (after == CAUSE["latency"]) & (idle.end - end.had <= end.usual_ns)
    # A faster host leaves the latency of its launch; without the wait or the fetch, there would be neither.
    behind = usual & ((late == CAUSE["launch"]) | (late == CAUSE["python"]))
    split = np.where((usual & ~behind) | (was_late & (late == after)), idle.end, end.had)
    waited = np.where(alone, idle.start, idle.start + by_wait)

    row = np.repeat(np.arange(len(idle)), 3)
    bounds = np.stack((idle.start, waited, waited, split, split, idle.end), axis=1).reshape(-1, 2)
    cause = np.stack((waited_for, late, after.astype(np.int8)), axis=1).reshape(-1)
    kept = bounds[:, 0] < bounds[:, 1]
    row, bounds, cause = row[kept], bounds[kept], cause[kept]
    parts, end = Intervals(bounds[:, 0], bounds[:, 1]), end.at(row)
    drained = np.where(parts.start == idle.start[row], drain[row], -1)
    culprit = _culprits(timeline, activity, doings, parts, end, cause, drained)
    behind = np.where(behind[row] & (cause == CAUSE["latency"]), late[row], -1).astype(np.int8)
    one = np.flatnonzero(behind >= 0)
    culprit[one] = culprit[one - 1]  # the row before is the part in which the host was late
    return Gaps(parts.start, parts.end, cause, end.op, culprit, behind)


class _Doing(msgspec.Struct, frozen=True, eq=False):
    """An activity of the host that may have delayed launches. `cause` is the cause of the idle time that follows."""

    cause: str
    spans: Intervals
    rows: I64 | I32  # the host rows to blame


def _doings(activity: HostActivity) -> tuple[_Doing, ...]:
    """Returns the activities in order of precedence. If two activities overlap, the overlap counts for the first."""
    waits = activity.waits
    return (
        # The driver waits for nobody meanwhile: if another thread waits, it is for what this one will launch.
        _Doing("startup", activity.driver_loading, activity.startup_rows),
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


def _shares(
    activity: HostActivity, doings: tuple[_Doing, ...], idle: Intervals, end: HandOver, drain: I64
) -> tuple[I64, I8, I64]:
    """Returns how much of each idle interval is due to each cause, in ns.

    Counts only the time until the next launch reaches the device.

    A wait that emptied the launch queue made the host late, by as long as it took at most: of the time in which the
    host dispatches after it, only so much is due to it.

    Args:
        activity: What the host did.
        doings: The activities that may have delayed launches.
        idle: The intervals.
        end: How each of them ends.
        drain: For each interval, the wait that emptied the launch queue, as an index into `activity.waits`, or -1.

    Returns:
        - How much is due to that wait.
        - The cause that this time has: `sync` or `copy`.
        - The rest: an array with a row for each cause, in the order of IDLE_CAUSES, and a column for each interval.
    """
    shares = np.zeros((len(IDLE_CAUSES), len(idle)), dtype=np.int64)
    waits = activity.waits
    blamed = Intervals.none()
    for doing in doings:
        own = doing.spans - blamed
        blamed |= own
        # A launch can itself load data, allocate or block (as a copy), but it cannot wait for earlier work.
        until = np.minimum(end.begun, end.had) if doing.cause == "sync" else end.had
        shares[CAUSE[doing.cause]] += own.covered(idle.start, until)

    each = np.arange(len(idle))
    drained = drain >= 0
    for_copy = waits.for_copy[np.maximum(drain, 0)] if len(waits) else drained
    waited_for = np.where(for_copy, CAUSE["copy"], CAUSE["sync"]).astype(np.int8)
    begun, ended = (
        each[np.maximum(drain, 0)] if len(waits) else np.zeros(len(idle), np.int64)
        for each in activity.waits_with_operation
    )
    # While the host stages the data of a copy, the device may be idle: that is an interval before this one.
    staging = Intervals.union(waits.start[waits.for_copy], waits.end[waits.for_copy])
    took = ended - begun - (idle & staging).covered(begun, idle.start)
    dispatching = end.had - idle.start - shares.sum(axis=0)
    while_waiting = shares[waited_for, each]
    after_it = np.clip(took - while_waiting, 0, dispatching)
    by_wait = np.where(drained, while_waiting + after_it, 0)
    shares[waited_for[drained], each[drained]] = 0
    # The host that launches nothing more does other work. Without its side, nobody knows.
    other_work = CAUSE["python"] if activity.operators else CAUSE["unknown"]
    to = np.where(end.nothing_follows, other_work, np.where(end.fed, CAUSE["input"], CAUSE["launch"]))
    np.add.at(shares, (to, each), dispatching - np.where(drained, after_it, 0))
    shares[CAUSE["input"], end.fed] += shares[CAUSE["python"], end.fed]
    shares[CAUSE["python"], end.fed] = 0
    return by_wait, waited_for, shares


def _culprits(
    timeline: Timeline,
    activity: HostActivity,
    doings: tuple[_Doing, ...],
    idle: Intervals,
    end: HandOver,
    cause: I8,
    drain: I64,
) -> I32:
    """Returns, for each idle interval, the event of the host to blame, as the index of a row of
    `timeline.host`; -1 if the cause of the interval is unknown.

    This event is the wait that emptied the launch queue, another activity, or the launch. `drain` has that wait, as an
    index into `activity.waits`, or -1.
    """
    host = timeline.host
    culprit = np.where(cause == CAUSE["unknown"], -1, end.launch).astype(np.int32)
    for doing in doings:
        mine = np.flatnonzero(cause == CAUSE[doing.cause])
        rows = doing.rows[np.argsort(host.start[doing.rows], kind="stable")]
        longest = _longest_within(host.start[rows], host.end[rows], idle.start[mine], idle.end[mine])
        culprit[mine[longest >= 0]] = rows[longest[longest >= 0]]
        if doing.cause == "input" and len(rows):  # work on a batch after it was fetched counts as its loading
            after = mine[(longest < 0) & end.fed[mine]]
            culprit[after] = rows[np.maximum(np.searchsorted(host.start[rows], end.begun_at[after]) - 1, 0)]
    drained = np.flatnonzero((drain >= 0) & ((cause == CAUSE["sync"]) | (cause == CAUSE["copy"])))
    culprit[drained] = activity.waits.row[drain[drained]]
    mine = np.flatnonzero(cause == CAUSE["python"])
    asleep, python = (spans.covered(idle.start[mine], idle.end[mine]) for spans in (activity.asleep, activity.python))
    awake = mine[2 * asleep < python]
    culprit[awake] = end.launch[awake]
    if timeline.meta.frames_at_calls:  # known only at calls: too coarse to blame
        awake = awake[culprit[awake] < 0]
    culprit[awake] = _running_frame(timeline, activity, idle.start[awake], idle.end[awake], culprit[awake])
    return culprit


def _draining_wait(activity: HostActivity, dry: I64, begun: I64, skew: int) -> I64:
    """Returns, for each idle interval, the wait during which the device ran out of work, as an index into
    `activity.waits`.

    The result is -1 if the device did not run out of work during a wait.

    Args:
        activity: What the host did.
        dry: When each interval begins, in ns.
        begun: When the host begins the launch that ends each interval, in ns.
        skew: The tolerance for the comparison of times, in ns.
    """
    waits = activity.waits
    if not len(waits):
        return np.full(len(dry), -1, dtype=np.int64)
    at = np.searchsorted(waits.start, np.minimum(dry + skew, begun - 1), side="right") - 1
    drained = (at >= 0) & (waits.end[np.maximum(at, 0)] >= dry - skew)
    return np.where(drained, at, -1)


def _running_frame(timeline: Timeline, activity: HostActivity, low: I64, high: I64, launch: I32) -> I32:
    """Returns, for each interval, the Python frame to blame, as the index of a row of
    `timeline.host`.

    This is the innermost frame that ran from the first to the last tenth of the interval's longest
    stretch of Python code, on the thread of `launch`. `launch` is the launch after each interval,
    as the index of a row of `timeline.host`. If it is -1, or if its thread has no frames, the
    launching thread with the most frames is used. If no frame is found, the result is `launch`.
    """
    host, python = timeline.host, activity.python
    launching = unique(host.thread[timeline.device.launch[timeline.device.launch >= 0]])
    is_frame = (host.kind == HostKind.PYTHON) & np.isin(host.thread, launching)
    is_frame[activity.asleep_rows] = False
    frames = np.flatnonzero(is_frame)
    if not (len(frames) and len(low)):
        return launch
    stretch = np.maximum(_longest_within(python.start, python.end, low, high), 0)
    begun, done = np.maximum(python.start[stretch], low), np.minimum(python.end[stretch], high)
    margin = (done - begun) // _MARGIN
    first, last = begun + margin, done - margin
    frames_of = dict(groups(host.thread[frames]))
    busiest = int(np.bincount(host.thread[frames]).argmax())
    thread = np.where(launch >= 0, host.thread[np.maximum(launch, 0)], busiest)
    result = launch.copy()
    for number, mine in groups(thread):
        rows = frames[frames_of.get(number, frames_of[busiest])]
        at = np.searchsorted(host.start[rows], first[mine], side="right") - 1
        latest = np.where(at >= 0, rows[np.maximum(at, 0)], -1).astype(np.int32)
        enclosing = first_reaching(host.parent, host.end, latest, last[mine])
        frame = np.where(enclosing >= 0, nearest(host.parent, is_frame)[enclosing], -1)
        result[mine] = np.where(frame >= 0, frame, launch[mine])
    return result


def _longest_within(start: I64, end: I64, low: I64, high: I64) -> I64:
    """Returns, for each window [low, high), the index of the interval that overlaps the window longest, or -1.

    The intervals [start, end) are sorted by start.
    """
    longest = np.full(len(low), -1, dtype=np.int64)
    most = np.zeros(len(low), dtype=np.int64)
    beyond = np.searchsorted(start, high, side="left")
    for back in range(1, min(_MOST_CANDIDATES, len(start)) + 1):
        at = np.maximum(beyond - back, 0)
        overlap = np.minimum(end[at], high) - np.maximum(start[at], low)
        better = (beyond >= back) & (overlap > most)
        longest[better], most[better] = at[better], overlap[better]
    return longest
