"""The accounts and the idle intervals of all devices together, and of each."""

from __future__ import annotations

import msgspec

from unstall.diagnose.accounts import Gaps, account, busy_parts
from unstall.diagnose.activity import HostActivity
from unstall.diagnose.causes import explain_gaps
from unstall.result import Accounts, DeviceAccounts
from unstall.timeline.columns import Bool, Timeline
from unstall.timeline.grouping import unique
from unstall.timeline.intervals import Intervals
from unstall.timeline.limits import MOST_DEVICES


class Accounted(msgspec.Struct, frozen=True, eq=False):
    """Where the time of a window went.

    Attributes:
        accounts: The busy time by kind of work, and the idle time by cause.
        gaps: The intervals in which the devices were idle.
        busy: The intervals in which a device was busy.
    """

    accounts: Accounts
    gaps: Gaps
    busy: Intervals


def accounted(timeline: Timeline, ops: Bool, activity: HostActivity, window: tuple[int, int]) -> Accounted:
    """Returns the accounts of the device ops in the mask `ops`. `activity` is that of the threads that launch them."""
    parts, busy, comm_ns = busy_parts(timeline, ops, window)
    gaps = explain_gaps(timeline, ops, busy, activity, window)
    return Accounted(account(parts, gaps, window, comm_ns), gaps, busy)


def accounts_by_device(
    timeline: Timeline, whole: Accounted, activity: HostActivity, window: tuple[int, int]
) -> tuple[tuple[DeviceAccounts, Gaps], ...]:
    """Returns the accounts and the idle intervals of each device. `whole` and `activity` are those of all devices."""
    activities = {_key(activity): activity}  # devices that the same threads feed share one

    def of(ops: Bool) -> Accounted:
        own = activity.of_launches(timeline.device.launch[ops])
        return accounted(timeline, ops, activities.setdefault(_key(own), own), window)

    devices = unique(timeline.device.device)
    found = []
    for number in devices[:MOST_DEVICES]:
        own = whole if len(devices) == 1 else of(timeline.device.device == number)
        named = DeviceAccounts(
            device=int(number),
            name=_device_name(timeline, int(number)),
            wall_ns=own.accounts.wall_ns,
            busy_ns=own.accounts.busy_ns,
            idle_ns=own.accounts.idle_ns,
            comm_ns=own.accounts.comm_ns,
        )
        found.append((named, own.gaps))
    return tuple(found)


def _key(activity: HostActivity) -> tuple[bytes, bytes]:
    return activity.threads.tobytes(), activity.launching.tobytes()


def _device_name(timeline: Timeline, number: int) -> str | None:
    names = timeline.meta.devices
    return names[number] if 0 <= number < len(names) else None
