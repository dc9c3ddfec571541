"""Computes the `Run` of a timeline: the data from which all findings are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.diagnose.accounts import Gaps, account, busy_parts
from unstall.diagnose.activity import HostActivity, find_activity
from unstall.diagnose.causes import explain_gaps
from unstall.diagnose.run import Run
from unstall.locate.places import Places, find_places
from unstall.locate.steps import Steps, find_steps
from unstall.locate.threads import dispatch_threads
from unstall.result import Accounts, DeviceAccounts
from unstall.timeline.clock_skew import clock_skew
from unstall.timeline.columns import Bool, Timeline
from unstall.timeline.intervals import Intervals
from unstall.timeline.limits import MOST_DEVICES


def analyse(
    timeline: Timeline,
    *,
    step: str | None = None,
    user: Sequence[str] = (),
    steps: Steps | None = None,
    places: Places | None = None,
) -> Run:
    """Finds the steps of a timeline, the source line of each event, and where the time went.

    Args:
        timeline: The recorded or replayed run.
        step: The name of the annotation around each step, or a glob. If None, the step name stored
            in the recording is used. If the recording has no step name, steps are detected.
        user: Globs of the files that count as the user's code. If empty, the globs stored in the
            recording are used. If the recording has no globs, all files except the files of
            frameworks count as the user's code.
        steps: The steps, if they are already known.
        places: The source line of each row of `timeline.host`, if these lines are already known.

    Raises:
        UsageError: No annotation is called `step`.
    """
    steps = steps or find_steps(timeline, step)
    user = user or timeline.meta.user
    window = steps.window
    device = timeline.device
    every = np.ones(len(device), dtype=np.bool_)
    second_step = int(steps.start[1]) if len(steps) > 1 else None
    skew_ns = clock_skew(timeline)

    activities: dict[bytes, HostActivity] = {}  # devices that the same threads feed share one

    def of(ops: Bool) -> tuple[Accounts, Gaps, Intervals, HostActivity]:
        threads = dispatch_threads(timeline, device.launch[ops])
        if (key := threads.tobytes()) not in activities:
            activities[key] = find_activity(timeline, threads, second_step, skew_ns)
        activity = activities[key]
        parts, busy, comm_ns = busy_parts(timeline, ops, window)
        gaps = explain_gaps(timeline, ops, busy, activity, window)
        return account(parts, gaps, window, comm_ns), gaps, busy, activity

    accounts, gaps, busy, activity = of(every)
    devices = np.unique(device.device)
    by_device = []
    for number in devices[:MOST_DEVICES]:
        own_accounts, own_gaps = (accounts, gaps) if len(devices) == 1 else of(device.device == number)[:2]
        by_device.append(
            (
                DeviceAccounts(
                    device=int(number),
                    name=_device_name(timeline, int(number)),
                    wall_ns=own_accounts.wall_ns,
                    busy_ns=own_accounts.busy_ns,
                    idle_ns=own_accounts.idle_ns,
                    comm_ns=own_accounts.comm_ns,
                ),
                own_gaps,
            )
        )
    if places is None:
        places = find_places(timeline, user, steps.name if steps.found_by == "annotation" else None)
    return Run(timeline, steps, places, activity, busy, accounts, gaps, tuple(by_device))


def _device_name(timeline: Timeline, number: int) -> str | None:
    names = timeline.meta.devices
    return names[number] if 0 <= number < len(names) else None
