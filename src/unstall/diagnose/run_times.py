"""The class `RunTimes`: where the time of a recorded run went."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from unstall.diagnose.accounts import Gaps
from unstall.diagnose.activity import HostActivity
from unstall.diagnose.device_accounts import Accounted, accounted, accounts_by_device
from unstall.diagnose.queue_depth import blocked_launches, depth_at_launch, depth_over_time
from unstall.locate.kinds import is_communication
from unstall.locate.places import Places
from unstall.locate.steps import Steps
from unstall.result import IDLE_CAUSES, Accounts, DeviceAccounts
from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import groups, members
from unstall.timeline.intervals import Intervals

# Of the window. The time of a step varies by more than this from run to run, so a smaller gain cannot be measured.
_NEGLIGIBLE = 0.001


class RunTimes(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A recorded run, and where its time went: when devices were busy and idle and why, how long the host waited, how
    long steps took. Each figure is computed when it is first asked for.

    Times are in ns. A figure "per step" is the mean over all steps.

    Attributes:
        timeline: What happened in the run.
        steps: The steps. Figures are about their time, from the start of the first to the end of
            the last.
        places: The source line of each row of `timeline.host`.
        activity: What the host did on the threads that launch.
    """

    timeline: Timeline
    steps: Steps
    places: Places
    activity: HostActivity

    @cached_property
    def _accounted(self) -> Accounted:
        return accounted(self.timeline, np.ones(len(self.timeline.device), np.bool_), self.activity, self.window)

    @property
    def accounts(self) -> Accounts:
        """The busy time by kind of work and the idle time by cause, in the window, of all devices together."""
        return self._accounted.accounts

    @property
    def gaps(self) -> Gaps:
        """The intervals in which all devices were idle."""
        return self._accounted.gaps

    @property
    def busy(self) -> Intervals:
        """The intervals in which at least one device was busy."""
        return self._accounted.busy

    @cached_property
    def by_device(self) -> tuple[tuple[DeviceAccounts, Gaps], ...]:
        """The accounts and the idle intervals of each device."""
        return accounts_by_device(self.timeline, self._accounted, self.activity, self.window)

    @property
    def window(self) -> tuple[int, int]:
        """The start and the end of the analysed time, in ns: the time of all steps together."""
        return self.steps.window

    @property
    def wall(self) -> int:
        """The length of the analysed time (the time of all steps together), in ns."""
        low, high = self.window
        return high - low

    def negligible(self, total: int) -> bool:
        """Returns whether a time is too short to be measured. `total` is the sum of the time over all steps, in ns."""
        return total < _NEGLIGIBLE * self.wall

    def per_step(self, total: int) -> int:
        """Returns the mean of a figure per step. `total` is the sum of the figure over all steps."""
        return round(int(total) / len(self.steps))

    @cached_property
    def inside(self) -> Bool:
        """A mask over the rows of `timeline.host`: the events that begin on the host between the
        start of the first step and the end of the last step.
        """
        start = self.timeline.host.start
        chosen: Bool = (start >= self.steps.start[0]) & (start < self.steps.end[-1])
        return chosen

    @cached_property
    def ops_inside(self) -> Bool:
        """A mask over the rows of `timeline.device`: the ops that run at least partly within the
        analysed time, which is the time of all steps together.
        """
        device = self.timeline.device
        low, high = self.window
        chosen: Bool = (device.end > low) & (device.start < high)
        return chosen

    @cached_property
    def comm(self) -> Bool:
        """A mask over the rows of `timeline.device`: the ops that are collectives."""
        return is_communication(self.timeline)

    @cached_property
    def blamed(self) -> I64:
        """For each row of `timeline.host`, how long all devices were idle because of this event, in ns."""
        return self._blamed(np.ones(len(self.gaps), dtype=np.bool_))

    @cached_property
    def exposed_by_waits(self) -> I64:
        """For each row of `timeline.host`, how long all devices were idle because of this event, in
        ns.

        Only idle time with the cause `sync` or `copy` counts.
        """
        return self.lost_to("sync", "copy")

    def _blamed(self, chosen: Bool) -> I64:
        total = np.zeros(len(self.timeline.host), dtype=np.int64)
        known = chosen & (self.gaps.culprit >= 0)
        np.add.at(total, self.gaps.culprit[known], self.gaps.length[known])
        return total

    @cached_property
    def host_length(self) -> I64:
        """For each row of `timeline.host`, how long the event runs during the steps, in ns. An
        event outside of the steps has 0.
        """
        host = self.timeline.host
        low, high = int(self.steps.start[0]), self.steps.window_end
        length: I64 = np.maximum(np.minimum(host.end, high) - np.maximum(host.start, low), 0)
        return length

    @cached_property
    def step_lengths(self) -> I64:
        """The length of each step, in ns. The lengths add up to the time of all steps together.

        A step ends when both the host and the device have finished the step. The host may be
        several steps ahead of the device.
        """
        steps, device = self.steps, self.timeline.device
        joined = np.flatnonzero(device.launch >= 0)
        launched = self.timeline.host.start[device.launch[joined]]
        of = np.searchsorted(steps.start, launched, side="right") - 1
        inside = (of >= 0) & (launched < steps.end[-1])
        ends = steps.end.astype(np.int64)
        np.maximum.at(ends, of[inside], device.end[joined[inside]])
        ends = np.minimum(np.maximum.accumulate(ends), steps.window_end)
        ends[-1] = steps.window_end
        return np.diff(ends, prepend=steps.window_start)

    @cached_property
    def waited(self) -> I64:
        """For each row of `timeline.host`, how long the host waited for a device in this event, in
        ns; 0 if the event is not a wait.
        """
        blocked = np.zeros(len(self.timeline.host), dtype=np.int64)
        rows = self.activity.waits.row
        blocked[rows] = self.host_length[rows]
        return blocked

    @cached_property
    def waiting(self) -> int:
        """The time during the steps in which at least one thread that launches work waited for a device, in ns."""
        waits = self.activity.waits
        mine = self.inside[waits.row]
        return Intervals.union(waits.start[mine], waits.end[mine]).clip(*self.window).total

    @cached_property
    def queue_waits(self) -> tuple[I64, I64]:
        """Returns `(rows, wait)`: the launches in the steps that a full launch queue blocked, as
        indices of rows of `timeline.host`; how long each of them waited, in ns.
        """
        calls, depth = self.launch_depth
        chosen = self.inside[calls]
        blocked, wait = blocked_launches(depth[chosen], self.host_length[calls[chosen]])
        return calls[chosen][blocked], wait

    @cached_property
    def queue_waiting(self) -> int:
        """The time during the steps in which at least one launch waited because the launch queue was full, in ns."""
        rows, wait = self.queue_waits
        end = self.timeline.host.end[rows]
        return Intervals.union(end - wait, end).clip(*self.window).total

    def busy_during(self, rows: I64) -> float:
        """Returns during which share of the time of some host events a device was busy, from 0 to
        1. `rows` are the events, as indices of rows of `timeline.host`.
        """
        host = self.timeline.host
        length = int((host.end - host.start)[rows].sum())
        return int(self._all_work.covered(host.start[rows], host.end[rows]).sum()) / max(length, 1)

    @cached_property
    def _all_work(self) -> Intervals:
        """The intervals in which at least one device was busy, inside and outside of the window.

        Intervals outside are needed because a wait may extend beyond the window.
        """
        return Intervals.union(self.timeline.device.start, self.timeline.device.end)

    def ops_of(self, rows: I64) -> I64:
        """Returns the ops that some host events launched, as indices of rows of `timeline.device`,
        ascending. `rows` are the events, as indices of rows of `timeline.host`.
        """
        order, launch = self._by_launch
        return np.sort(order[members(launch, np.unique(rows))])

    @cached_property
    def _by_launch(self) -> tuple[I64, I32]:
        launch = self.timeline.device.launch
        order = np.argsort(launch, kind="stable")
        return order, launch[order]

    @cached_property
    def launch_depth(self) -> tuple[I64, I32]:
        """Returns `(calls, depth)`: the calls that launch device ops, as indices of rows of
        `timeline.host`; for each of them, how many launched ops its device has not finished when
        the call begins.
        """
        return depth_at_launch(self.timeline)

    @cached_property
    def depth(self) -> tuple[I64, I32]:
        """Returns `(times, depth)`: times in ns, ascending; how many launched ops the device has
        not finished, from each of these times on.
        """
        return depth_over_time(self.timeline)

    def work(self, chosen: Bool) -> dict[int, Intervals]:
        """Returns, for each device, the intervals in which it ran some of its ops. The keys are the
        numbers of the devices.

        `chosen` is a mask over the rows of `timeline.device`: the ops that count.
        """
        device = self.timeline.device
        rows = np.flatnonzero(chosen)
        return {
            number: Intervals.union(device.start[rows[mine]], device.end[rows[mine]])
            for number, mine in groups(device.device[rows])
        }

    def alone(self, ops: I64, beside: dict[int, Intervals]) -> int:
        """Returns for how long, during the steps, at least one of some ops ran while its device did
        no other work, in ns.

        Args:
            ops: The ops, as indices of rows of `timeline.device`.
            beside: For each device, by its number, the intervals of the work that counts as other
                work.
        """
        device = self.timeline.device
        parts = Intervals.none()
        for number, mine in groups(device.device[ops]):
            own = Intervals.union(device.start[ops[mine]], device.end[ops[mine]]).clip(*self.window)
            parts |= own - beside[number] if number in beside else own
        return parts.total

    def lost_to(self, *causes: str) -> I64:
        """Returns, for each row of `timeline.host`, how long all devices were idle because of this
        event, in ns.

        Only idle time that has one of `causes` counts.
        """
        return self._blamed(self.gaps.lost_to(*causes))

    def gaps_by(self, cause: str) -> I64:
        """Returns the indices of the intervals in `gaps` that have the cause `cause`, such as "sync"."""
        return np.flatnonzero(self.gaps.cause == IDLE_CAUSES.index(cause))

    def idle_of(self, rows: I64, *causes: str) -> I64:
        """Returns the indices of the intervals in `gaps` that have one of `causes` and are due to
        some host events.

        `rows` are the events, as indices of rows of `timeline.host`.
        """
        return np.flatnonzero(self.gaps.lost_to(*causes) & np.isin(self.gaps.culprit, rows))
