"""Every nanosecond of the window has one cause: busy with what, or idle because of what, to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diagnose.activity import Activity, is_comm
from unstall.diagnose.spans import Spans
from unstall.result import IDLE_CAUSES, Accounts, Busy, Idle
from unstall.timeline import I8, I32, I64, Bool, DeviceKind, HostKind, Timeline, WaitKind

CAUSE = {name: code for code, name in enumerate(IDLE_CAUSES)}
_SKEW_NS = 10_000  # host and device clocks are aligned no better than that


@dataclass(frozen=True, eq=False, slots=True)
class Gaps:
    """Idle intervals of a device (or of all together), in order of time."""

    start: I64
    end: I64
    cause: I8  # index into result.IDLE_CAUSES
    op: I32  # device row of the op that ends it, or -1
    culprit: I32  # host row of what to blame: the wait, the allocation, the late launch; or -1

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> I64:
        """ns of each."""
        return self.end - self.start


def busy_parts(timeline: Timeline, ops: Bool, window: tuple[int, int]) -> tuple[Busy, Spans]:
    """How long the chosen device ops kept the device busy, by kind, and when."""
    device = timeline.device
    comm = is_comm(timeline)

    def union(chosen: Bool) -> Spans:
        rows = ops & chosen
        return Spans.union(device.start[rows], device.end[rows]).clip(*window)

    copies = union(device.kind == DeviceKind.COPY)
    compute = union((device.kind != DeviceKind.COPY) & ~comm)
    work = compute | copies
    everything = work | union(comm)
    both = compute.total + copies.total - work.total
    parts = Busy(
        compute=compute.total - both,
        copy=copies.total - both,
        both=both,
        comm=everything.total - work.total,
    )
    return parts, everything


def account(busy: Busy, gaps: Gaps, window: tuple[int, int]) -> Accounts:
    """Sum it up. wall == busy + idle holds by construction: gaps are the complement of what is busy."""
    sums = np.zeros(len(IDLE_CAUSES), dtype=np.int64)
    np.add.at(sums, gaps.cause, gaps.length)
    idle = Idle(**{name: int(sums[code]) for name, code in CAUSE.items()})
    return Accounts(wall_ns=window[1] - window[0], busy_ns=busy, idle_ns=idle)


def explain_gaps(timeline: Timeline, ops: Bool, busy: Spans, activity: Activity, window: tuple[int, int]) -> Gaps:
    """Give each idle interval its one cause: why did the op that ends it start so late?

    If its launch had been made before the device ran dry, the op was held: by an event of another stream, else
    by plain latency. If not, the host was late, and what it did since then decides: the largest share wins,
    where all dispatching after a wait that had drained the queue counts as that wait's.
    """
    host, device = timeline.host, timeline.device
    idle = busy.gaps(*window)
    rows = np.flatnonzero(ops)
    op = _ending_op(device.start[rows], rows, idle)
    launch = np.where(op >= 0, device.launch[np.maximum(op, 0)], -1) if len(device) else op
    launch_start = np.where(launch >= 0, host.start[np.maximum(launch, 0)], idle.end) if len(host) else idle.end
    launch_end = np.where(launch >= 0, host.end[np.maximum(launch, 0)], idle.end) if len(host) else idle.end

    inner = _inside_one_launch(timeline, op, rows)
    waits_for_event = _held_by_event(timeline, op, launch)
    # What the host did once it had launched delayed nothing: then only an event can still hold the op.
    late_until = np.clip(launch_start, idle.start, idle.end)
    launched = np.clip(launch_end, idle.start, idle.end)
    shares = np.zeros((len(IDLE_CAUSES), len(idle)), dtype=np.int64)
    waits = activity.waits
    waiting = Spans.union(waits.start[~waits.for_copy], waits.end[~waits.for_copy])
    copying = Spans.union(waits.start[waits.for_copy], waits.end[waits.for_copy]) - waiting
    blamed = waiting | copying
    shares[CAUSE["sync"]] = waiting.covered(idle.start, late_until)
    shares[CAUSE["copy"]] = copying.covered(idle.start, launched)
    for name, spans in (
        ("input", activity.input),
        ("allocator", activity.allocator),
        ("startup", activity.startup),
        ("comm", activity.comm),
        ("python", activity.python),
    ):
        own = spans - blamed
        blamed = blamed | own
        shares[CAUSE[name]] = own.covered(idle.start, launched)
    shares[CAUSE["event"]] = np.where(waits_for_event, idle.end - launched, 0)
    dispatching = idle.end - idle.start - shares.sum(axis=0)
    drain = _draining_wait(waits.start, waits.end, idle.start, launch_start)
    drained = drain >= 0
    by_copy = drained & waits.for_copy[np.maximum(drain, 0)] if len(waits) else drained
    dispatch_cause = np.where(by_copy, CAUSE["copy"], np.where(drained, CAUSE["sync"], CAUSE["launch"]))
    np.add.at(shares, (dispatch_cause, np.arange(len(idle))), dispatching)
    cause = shares.argmax(axis=0).astype(np.int8)

    held = (launch >= 0) & ((launch_end <= idle.start) | (inner & (launch_start <= idle.start)))
    cause[held] = np.where(waits_for_event[held], CAUSE["event"], CAUSE["latency"])

    culprit = np.where(launch >= 0, launch, -1).astype(np.int32)
    for name, at_fault in (
        ("sync", waits.row),
        ("copy", waits.row),
        ("input", activity.input_rows),
        ("allocator", activity.allocator_rows),
        ("startup", activity.startup_rows),
        ("comm", activity.comm_rows),
    ):
        mine = np.flatnonzero(cause == CAUSE[name])
        if name in ("sync", "copy"):
            known = drain[mine] >= 0
            culprit[mine[known]] = waits.row[drain[mine[known]]]
            mine = mine[~known]
        at_fault = at_fault[np.argsort(host.start[at_fault], kind="stable")]
        longest = _longest_within(host.start[at_fault], host.end[at_fault], idle.start[mine], idle.end[mine])
        culprit[mine[longest >= 0]] = at_fault[longest[longest >= 0]]
    mine = np.flatnonzero(cause == CAUSE["python"])
    culprit[mine] = _running_frame(timeline, activity.python, idle.start[mine], idle.end[mine], culprit[mine])
    return Gaps(idle.start, idle.end, cause, op, culprit)


def _ending_op(starts: I64, rows: I64, idle: Spans) -> I32:
    """The device row of the first op that starts when each gap ends, or -1 at the window's end."""
    if not len(rows):
        return np.full(len(idle), -1, dtype=np.int32)
    at = np.minimum(np.searchsorted(starts, idle.end), len(rows) - 1)
    return np.where(starts[at] == idle.end, rows[at], -1).astype(np.int32)


def _draining_wait(start: I64, end: I64, dry: I64, launched: I64) -> I64:
    """The wait that the host was in when the device ran dry, and after which it launched anew; or -1."""
    if not len(start):
        return np.full(len(dry), -1, dtype=np.int64)
    at = np.searchsorted(start, dry + _SKEW_NS, side="right") - 1
    wait = np.maximum(at, 0)
    drained = (at >= 0) & (end[wait] >= dry - _SKEW_NS) & (start[wait] < launched)
    return np.where(drained, at, -1)


def _inside_one_launch(timeline: Timeline, op: I32, rows: I64) -> Bool:
    """Whether the op that ends a gap is not the first of its launch: inside a graph."""
    launch = timeline.device.launch
    first = np.full(len(timeline.host) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, launch[rows], rows)
    return (op >= 0) & (first[launch[np.maximum(op, 0)]] < op) if len(launch) else op >= 0


def _held_by_event(timeline: Timeline, op: I32, launch: I32) -> Bool:
    """Whether an op's stream was told to wait for an event between the stream's last launch and this one."""
    waits, host, device = timeline.waits, timeline.host, timeline.device
    held = np.zeros(len(op), dtype=np.bool_)
    told = np.flatnonzero(waits.kind == WaitKind.STREAM_EVENT)
    launched = np.flatnonzero(device.launch >= 0)
    for stream in np.unique(waits.stream[told]):
        asked = np.flatnonzero((op >= 0) & (launch >= 0))
        asked = asked[device.stream[op[asked]] == stream]
        if stream < 0 or not len(asked):
            continue
        wait_times = np.sort(host.start[waits.host[told[waits.stream[told] == stream]]])
        mine = launched[device.stream[launched] == stream]
        launch_times = np.unique(host.start[device.launch[mine]])
        this = host.start[launch[asked]]
        previous = np.searchsorted(launch_times, this, side="left") - 1
        since = np.where(previous >= 0, launch_times[np.maximum(previous, 0)], np.iinfo(np.int64).min)
        last = np.searchsorted(wait_times, this, side="left") - 1
        held[asked] = (last >= 0) & (wait_times[np.maximum(last, 0)] > since)
    return held


def _running_frame(timeline: Timeline, python: Spans, low: I64, high: I64, otherwise: I32) -> I32:
    """The Python frame that ran in the middle of the longest stretch of Python within each interval."""
    host = timeline.host
    frames = np.flatnonzero(host.kind == HostKind.PYTHON)
    if not (len(frames) and len(low)):
        return otherwise
    thread = np.bincount(host.thread[frames]).argmax()
    frames = frames[host.thread[frames] == thread]
    stretch = _longest_within(python.start, python.end, low, high)
    known = stretch >= 0
    at = np.maximum(stretch, 0)
    middle = (np.maximum(python.start[at], low) + np.minimum(python.end[at], high)) // 2
    row = frames[np.maximum(np.searchsorted(host.start[frames], middle, side="right") - 1, 0)]
    while True:
        ended = (row >= 0) & (
            (host.end[np.maximum(row, 0)] < middle) | (host.kind[np.maximum(row, 0)] != HostKind.PYTHON)
        )
        if not ended.any():
            return np.where(known & (row >= 0), row, otherwise).astype(np.int32)
        row = np.where(ended, host.parent[np.maximum(row, 0)], row)


def _longest_within(start: I64, end: I64, low: I64, high: I64) -> I64:
    """Index of the one of the intervals, sorted by start, that covers most of each window [low, high), or -1."""
    longest = np.full(len(low), -1, dtype=np.int64)
    # Intervals may overlap (several threads), so an end may come late; the running maximum says from where none does.
    first = np.searchsorted(np.maximum.accumulate(end), low, side="right")
    beyond = np.searchsorted(start, high, side="left")
    count = np.maximum(beyond - first, 0)
    window = np.repeat(np.arange(len(low)), count)
    member = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    member += np.repeat(first, count)
    overlap = np.minimum(end[member], high[window]) - np.maximum(start[member], low[window])
    order = np.lexsort((overlap, window))
    last = np.flatnonzero(np.append(np.diff(window[order]) != 0, True)) if len(order) else order
    longest[window[order[last]]] = member[order[last]]
    return longest
