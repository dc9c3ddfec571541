"""`Steps`, and functions that make `Steps` from spans of time on the host."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.timeline.columns import I64, Bool, HostKind, StepsLeftOut, Timeline

FoundBy = Literal["annotation", "optimizer", "period", "whole"]

ALIKE = 0.9
"""The smallest share of launches that counts as nearly all (0.9). Two steps are alike if they have
this share of their launches in common. Annotations can be steps if they enclose this share of all
launches.
"""

LEAST_PERIODS = 3  # repetitions; two may be a coincidence


class Steps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a run, in order of time, and the window of time [window_start, window_end) that
    they fill. All times are in ns.

    When the host begins the first step, the device may still have earlier work in its queue. The
    window starts after this earlier work, so that the window does not include it. The window ends
    when the device has finished the last step.
    """

    found_by: FoundBy
    name: str | None
    start: I64
    end: I64  # end of the host's part; the device may still be working
    window_start: int  # the later of the first step's start and the end of earlier device work
    window_end: int  # the later of the last step's end and the end of its last device op
    hint: str | None = None  # an annotation that might mark the steps, if none was used
    repeats: tuple[int, int] | None = None
    """The pair (launches in one repetition, number of repetitions), if the sequence of launches
    repeats but it is not clear whether the repetitions are steps or layers. They are then not used
    as steps. None if this is not the case.
    """
    left_out: StepsLeftOut | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def unit(self) -> str:
        """What the figures of a report are about: "a step", or "the run" if no steps were found."""
        return "the run" if self.found_by == "whole" else "a step"

    @property
    def window(self) -> tuple[int, int]:
        """The window of time that the steps fill, as (start, end), in ns."""
        return self.window_start, self.window_end


def steps_of(timeline: Timeline, found_by: FoundBy, name: str, start: I64, end: I64) -> Steps:
    """Makes `Steps` from spans of time on the host, and finds the window that the steps fill.

    Spans without launches are left out. If no span has launches, all spans are kept.

    Args:
        timeline: A recorded run.
        found_by: How the steps were found.
        name: The name of the annotation around each step, or another description of what a step is.
        start: The start of each span, in ns.
        end: The end of each span, in ns.
    """
    launched = launch_times(timeline)
    work = np.searchsorted(launched, end, side="right") - np.searchsorted(launched, start, side="left")
    left_out = None
    if work.any() and not work.all():
        lengths = (end - start)[work == 0]
        left_out = StepsLeftOut(empty=len(lengths), of=len(start), mean_ns=max(1, round(float(lengths.mean()))))
        start, end = start[work > 0], end[work > 0]
    return Steps(found_by, name, start, end, *_window(timeline, start, end), left_out=left_out)


def narrowed(timeline: Timeline, steps: Steps, first: int, last: int) -> Steps:
    """Returns the steps with the indices from `first` to `last - 1`. The window of the result is
    the time that these steps fill.
    """
    start, end = steps.start[first:last], steps.end[first:last]
    window_start, window_end = _window(timeline, start, end)
    return replace(steps, start=start, end=end, window_start=window_start, window_end=window_end)


def left_out_around(steps: Steps, first: int, last: int) -> StepsLeftOut | None:
    """Returns which steps are left out if only those with the indices from `first` to `last - 1` count.

    Those before are a warm-up, those after are not asked for. Returns None if no step is left out.
    """
    outside = np.concatenate((np.arange(first), np.arange(last, len(steps))))
    if not len(outside):
        return steps.left_out
    mean_ns = max(1, round(float((steps.end - steps.start)[outside].mean())))
    found = steps.left_out or StepsLeftOut(of=len(steps), mean_ns=mean_ns)
    return replace(found, warmup=first, later=len(steps) - last)


def with_work_outside(timeline: Timeline, steps: Steps, left_out: StepsLeftOut) -> StepsLeftOut:
    """Returns `left_out` with the share of the run's device work that is in no step. A step that does not count is
    taken to have as much work as the mean of `steps`, so the share is not known if `unstall.graphed` checks graphs.

    Args:
        timeline: The whole run.
        steps: The steps of the run.
        left_out: Which steps of the run the figures leave out.
    """
    device = timeline.device
    work = device.end - device.start
    if left_out.proving or not work.any():
        return left_out
    launched = timeline.host.start[device.launch]
    step = np.searchsorted(steps.start, launched, side="right") - 1
    inside = (device.launch >= 0) & (step >= 0) & (launched < steps.end[step])
    in_steps = float(work[inside].sum()) / len(steps) * (left_out.of - left_out.empty)
    return replace(left_out, outside_percent=max(0, round(100 * (1 - in_steps / float(work.sum())))))


_LITTLE = 0.05  # of the launches
LATE_NS = 1_000_000
"""A delay in ns. If an op starts at least this long after its launch, the device had other work to do before the op. On
an idle device, an op starts within microseconds after its launch (benchmarks/results/device_delays_h200.json)."""


def whole(timeline: Timeline) -> Steps:
    """Returns the whole run as one step. The step lasts from the start of the first operator, call
    or device op to the end of the last operator, call or device op.

    If the device was still busy with work that was launched before the recording, the window of the
    step begins when the device has finished this work. The host's part begins then, too, unless the
    host has already made more than 5 % of its launches. If it has, the window begins with the host
    if that worked for most of the time before. The host's part ends with the last event of the
    host, even if the device goes on.
    """
    host, device = timeline.host, timeline.device
    start = int(min(host_start(timeline), device.start.min(initial=_FAR)))
    held, begins = _earlier_work(timeline)
    launched = launch_times(timeline)
    early = np.searchsorted(launched, begins) > _LITTLE * len(launched)
    if begins < start or (early and 2 * (begins - held) < begins - start):
        begins = start
    end = int(max(host.end[_is_working(timeline)].max(initial=0), device.end.max(initial=0)))
    if start > end:
        start, end = int(host.start.min(initial=0)), int(host.end.max(initial=0))
        return Steps("whole", None, np.array([start]), np.array([end]), start, end)
    by_host = int(max(host.end.max(initial=0), device.end[device.launch < 0].max(initial=0)))
    part = np.array([start if early else begins]), np.array([min(end, by_host)])
    return Steps("whole", None, *part, begins, end)


def _earlier_work(timeline: Timeline) -> tuple[int, int]:
    """Returns `(start, end)`: from when on the work that was launched before the recording held up
    launches of the recording, and when the device finished this work, in ns. Both are 0 if the
    device had no such work.

    The device had such work if the first op of a stream started far later than its launch returned,
    while the device ran nothing that was recorded. At most 5 % of all ops may have started earlier.
    """
    host, device = timeline.host, timeline.device
    if not len(device):
        return 0, 0
    order = np.argsort(device.start, kind="stable")
    ran = np.empty(len(order), dtype=np.int64)  # until when the ops that started earlier ran
    ran[order] = np.append(0, np.maximum.accumulate(device.end[order])[:-1])
    few = order[: 1 + int(_LITTLE * len(order))]
    first = few[np.unique(device.stream[few], return_index=True)[1]]
    first = first[device.launch[first] >= 0]
    since = np.maximum(host.end[device.launch[first]], ran[first])
    late = np.flatnonzero(device.start[first] - since >= LATE_NS)
    if not len(late):
        return 0, 0
    last = late[np.argmax(device.start[first[late]])]
    return int(since[last]), int(device.start[first[last]])


def host_start(timeline: Timeline) -> int:
    """Returns the time in ns at which the first operator or call begins on the host."""
    return int(timeline.host.start[_is_working(timeline)].min(initial=_FAR))


def launch_times(timeline: Timeline) -> I64:
    """Returns the times in ns, ascending, at which the device ops were launched."""
    launch = timeline.device.launch
    return np.sort(timeline.host.start[launch[launch >= 0]])


def launch_sequence(timeline: Timeline) -> tuple[I64, I64]:
    """Returns `(calls, tokens)` for the launches of the host, in order of time.

    `calls` are the launches, as rows of `timeline.host`. `tokens` has a number for each launch,
    which stands for the name and the stream of the first op that the call launches. Calls with
    equal tokens launch the same kernel on the same stream.
    """
    device = timeline.device
    known = np.flatnonzero(device.launch >= 0)
    calls, first = np.unique(device.launch[known], return_index=True)
    order = np.argsort(timeline.host.start[calls], kind="stable")
    ops = known[first][order]
    tokens = device.name[ops].astype(np.int64) * (len(timeline.streams) + 1) + device.stream[ops]
    return calls[order].astype(np.int64), tokens


def device_begins(host_ns: int, queued_ns: int, first_ns: int) -> int:
    """Returns the time in ns at which the device begins the first step.

    Args:
        host_ns: The time at which the host begins the first step.
        queued_ns: The time at which the device finishes the work that was launched before the first step. If this time
            is later than `first_ns`, the earlier work ran on a separate stream and did not delay the step. In this
            case, `queued_ns` is ignored.
        first_ns: The time at which the device finishes the work of the first step.
    """
    return max(host_ns, queued_ns) if queued_ns <= first_ns else host_ns


def _window(timeline: Timeline, start: I64, end: I64) -> tuple[int, int]:
    host, device = timeline.host, timeline.device
    joined = device.launch >= 0
    launched = np.full(len(device), np.iinfo(np.int64).min)
    launched[joined] = host.start[device.launch[joined]]
    ours = joined & (launched >= start[0]) & (launched < end[-1])
    low, high = int(start[0]), int(device.end[ours].max(initial=end[-1]))
    if not ours.any():
        return low, high
    # Ops launched before the recording have no launch in it. They may run after ops of the first step that overtook
    # them on another stream.
    earlier = np.where(joined, launched < low, timeline.queued_before | (device.start < device.start[ours].min()))
    before = int(device.end[earlier].max(initial=low))
    of_first = ours & (launched < start[1]) if len(start) > 1 else ours
    return device_begins(low, before, int(device.end[of_first].max(initial=low))), high


def _is_working(timeline: Timeline) -> Bool:
    host = timeline.host
    chosen: Bool = (host.kind <= HostKind.CALL) & ((host.op >= 0) | (host.kind != HostKind.SYNC))
    return chosen


_FAR = np.iinfo(np.int64).max
