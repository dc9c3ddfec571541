"""The class `Run`: a recorded run with the data from which all findings are made, such as its steps
and idle intervals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from unstall.diagnose.accounts import Gaps
from unstall.diagnose.activity import HostActivity
from unstall.diagnose.device_accounts import Accounted, accounted, accounts_by_device
from unstall.diagnose.queue_depth import blocked_launches, depth_at_launch, depth_over_time
from unstall.locate.framework_code import FrameworkCode
from unstall.locate.frameworks import Framework, Option
from unstall.locate.kinds import is_communication, named
from unstall.locate.operations import has_operators
from unstall.locate.places import Places
from unstall.locate.platform import Platform, in_words_of, platform
from unstall.locate.proving import EAGERLY, FOR_SPEED, called_without_graph
from unstall.locate.steps import Steps
from unstall.result import (
    IDLE_CAUSES,
    Accounts,
    Confidence,
    DeviceAccounts,
    Finding,
    Where,
)
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import groups, members
from unstall.timeline.intervals import Intervals
from unstall.what_if.place import EditPlace, graph_of

_MOST_SPANS = 100
_EDITS_THE_LINE = re.compile(r"sync-|.*-copy$|launch-bound$|tiny-kernels$")  # rules whose advice changes that line
# Of the window. The time of a step varies by more than this from run to run, so a smaller gain cannot be measured.
_NEGLIGIBLE = 0.001


class Group(msgspec.Struct, frozen=True, eq=False):
    """Events of the host at one source line and in the same outermost operator.

    Attributes:
        place: The number of the source line, in `Run.places`.
        op: The name of the outermost operator around the events; None if there is none.
        rows: The events, as indices of rows of `timeline.host`.
    """

    place: int
    op: str | None
    rows: I64


class Run(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A recorded run: its timeline, and data computed from the timeline. Findings are made from a
    `Run`.

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

    @cached_property
    def without_graph(self) -> dict[str, Bool]:
        """For each way in which `unstall.graphed` calls a function without a graph, `EAGERLY` and `FOR_SPEED`: whether
        each row of `timeline.host` happens in such a call.
        """
        return {method: called_without_graph(self.timeline, method) for method in (EAGERLY, FOR_SPEED)}

    def negligible(self, total: int) -> bool:
        """Returns whether a time is too short to be measured. `total` is the sum of the time over
        all steps, in ns.
        """
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
        """For each row of `timeline.host`, how long all devices were idle because of this event, in
        ns.
        """
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
        """The time during the steps in which at least one thread that launches work waited for a
        device, in ns.
        """
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
        """The time during the steps in which at least one launch waited because the launch queue
        was full, in ns.
        """
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

    def groups(self, rows: I64) -> Iterator[Group]:
        """Yields host events in groups: the events of a group have the same source line and the
        same outermost operator.

        `rows` are the events, as indices of rows of `timeline.host`.
        """
        top = self.places.top_op[rows]
        op = np.where(top >= 0, self.timeline.host.name[np.maximum(top, 0)], -1)
        width = len(self.timeline.strings) + 1
        for _, part in groups(self.places.place[rows] * width + op):
            name = self.timeline.text(int(op[part[0]])) or None
            yield Group(int(self.places.place[rows[part[0]]]), name, rows[part])

    def lines(self, rows: I64) -> Iterator[Group]:
        """Yields host events in groups: the events of a group have the same source line.

        The group's field `op` is the outermost operator around its events if they all have the same
        one, and None if they do not. `rows` are the events, as indices of rows of `timeline.host`.
        """
        top = self.places.top_op[rows]
        op = np.where(top >= 0, self.timeline.host.name[np.maximum(top, 0)], -1)
        for _, part in groups(self.places.place[rows]):
            name = self.timeline.text(int(op[part[0]])) if (op[part] == op[part[0]]).all() else ""
            yield Group(int(self.places.place[rows[part[0]]]), name or None, rows[part])

    def instances(self, rows: I64) -> int:
        """Returns how many calls of operators contain some host events. Each event outside of
        operators adds one.

        `rows` are the events, as indices of rows of `timeline.host`.
        """
        operation = self.places.operation[rows]
        return len(np.unique(np.where(operation >= 0, operation, rows)))

    def finding(
        self,
        rule: str,
        group: Group,
        *,
        title: str,
        saw: str,
        fix: str,
        safe_if: str,
        total_exposed_ns: int,
        total_wait_ns: int | None = None,
        count: int | None = None,
        edit: str | None = None,
        confidence: Confidence = "high",
        harmless: bool = False,
        wrong: bool = False,
        explains: bool = False,
        spans: tuple[tuple[int, int], ...] | None = None,
    ) -> Finding:
        """Returns a finding at the source line of a group of host events.

        The arguments are fields of the finding, with these exceptions. Arguments named `total_…`
        are sums over all steps in ns, and the finding has their means per step.

        Args:
            rule: The name of the kind of finding.
            group: The events that the finding is about.
            title: A sentence that says what happens.
            saw: What was observed.
            fix: What to do about it.
            safe_if: The condition under which the change keeps the program correct.
            total_exposed_ns: The device time that is lost.
            total_wait_ns: How long the host was blocked. If None, the time of the group's events.
            count: How often it happens. If None, how many operators contain the group's events.
            edit: The kind of edit by which a replay predicts the gain; None if there is none.
            confidence: How certain the finding is.
            harmless: Whether the finding costs nothing.
            wrong: Whether results may be wrong.
            explains: Whether the finding explains what surprises people.
            spans: The times that a chart highlights, as (start, end) in ns. If None, those of the
                group's costliest events.
        """
        rows = group.rows
        say = self.in_its_words
        wait = int(self.host_length[rows].sum()) if total_wait_ns is None else total_wait_ns
        where = self.where(group)
        found = self.framework_code.option_for(rule, group.place, rows)
        fix, safe_if = self._for_the_user(rule, found, where, fix, safe_if)
        if found and not self.framework_code.shortens(*found, rows):
            edit = None
        return Finding(
            rule=rule,
            title=say(title),
            where=where,
            count=self.instances(rows) if count is None else count,
            steps_seen=self.steps_with(self.timeline.host.start[rows]),
            wait_ns=self.per_step(wait),
            exposed_ns=self.per_step(total_exposed_ns),
            edit=self._at(edit, where),
            saw=say(saw),
            fix=say(fix),
            safe_if=say(safe_if),
            confidence=confidence,
            harmless=harmless,
            wrong=wrong,
            explains=explains,
            spans=self.spans_of(rows) if spans is None else spans,
        )

    def _for_the_user(
        self, rule: str, found: tuple[Framework, Option] | None, where: Where, fix: str, safe_if: str
    ) -> tuple[str, str]:
        """Returns (fix, safe_if): the advice, and the condition under which the advice is safe.

        The advice changes only code that the user can change. Code in installed packages stays unchanged.
        """
        if found:
            framework, option = found
            fix, safe_if = f"{option.do} ({framework.name})", option.safe_if
            if not option.at_the_line:
                return fix, safe_if
        package = self.framework_code.package_of(where.file)
        if package is None or not _EDITS_THE_LINE.match(rule):
            return fix, safe_if
        caller = where.called_from
        own = caller is not None and self.framework_code.package_of(caller.file) is None
        yours = f"your line {caller.file}:{caller.line}" if caller is not None and own else "your own code"
        return (
            f"leave {package} as it is, and change what {yours} passes to it or calls, or override {where.function} "
            f"in a class of your own, so as to: {fix}",
            safe_if,
        )

    @cached_property
    def framework_code(self) -> FrameworkCode:
        """Says which of the run's stack frames are code of a framework, and of which framework."""
        return FrameworkCode(self.places)

    @cached_property
    def _platform(self) -> Platform:
        return platform(self.timeline)

    def in_its_words(self, text: str) -> str:
        """Returns a text in the terms of the run's platform. On an AMD card, for example, it names
        HIP's calls instead of CUDA's.
        """
        return in_words_of(self._platform, text)

    def _at(self, edit: str | None, where: Where) -> str | None:
        """Returns a text with the edit and its place, or None if the place is unknown but other events have places.

        For the edit `graph`, the place is FILE:FUNCTION. For other edits, the place is FILE:LINE, and the operator
        follows if the line is a `def` line. If only the operator is known, the operator is the place, except for
        `graph`. If no event in the recording has a place, the edit has no place either, and applies everywhere.
        """
        if edit is None or ":" in edit:
            return edit
        has_lines = len(self.timeline.stacks) > 0
        if edit == "graph":
            if where.file is not None:
                return graph_of(where.file, where.function)
            return None if has_lines else edit
        if where.file is None:
            if where.op:
                return f"{edit}:{EditPlace(None, op=where.op)}"
            return None if has_lines or has_operators(self.timeline) else edit
        return f"{edit}:{EditPlace(where.file, where.line, where.op if where.line_is == 'def' else None)}"

    def within(self, rows: I64, file: re.Pattern[str]) -> Bool:
        """Returns a mask over `rows`: True for events with a stack frame in a file whose name
        matches the pattern `file`.

        The pattern must match from the start of the file name. `rows` are indices of rows of
        `timeline.host`.
        """
        stacks, lines = self.timeline.stacks, self.timeline.lines
        frames = nearest(stacks.parent, named(self.timeline, file, lines.file)[stacks.line])
        stack = self.timeline.host.stack[rows]
        found = np.zeros(len(rows), dtype=np.bool_)
        found[stack >= 0] = frames[stack[stack >= 0]] >= 0
        return found

    def steps_with(self, times: I64) -> int:
        """Returns how many steps contain at least one of `times`, which are in ns.

        A time before the first step counts as a time in the first step.
        """
        return len(np.unique(np.searchsorted(self.steps.start[1:], times, side="right")))

    def where(self, group: Group) -> Where:
        """Returns the source line of a group of events and the line that usually called its
        function, in the form that reports print.
        """
        return self.places.where(group.place, group.rows, group.op)

    def spans_of(self, rows: ArrayLike) -> tuple[tuple[int, int], ...]:
        """Returns the times of the costliest of some host events, as `(start, end)` in ns, sorted
        by time.

        `rows` are the events, as indices of rows of `timeline.host`.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        host = self.timeline.host
        cost = self.blamed[chosen] + self.host_length[chosen]
        return costliest(host.start[chosen], host.end[chosen], cost)

    def idle_spans(self, rows: I64, *causes: str) -> tuple[tuple[int, int], ...]:
        """Returns the longest times, as `(start, end)` in ns, in which all devices were idle
        because of some host events. The times are sorted by time.

        Intervals that touch are merged. For example, an idle time may have one part before its
        launch returns and one part after.

        Args:
            rows: The events, as indices of rows of `timeline.host`.
            causes: Only idle time that has one of these causes counts.
        """
        chosen = self.idle_of(rows, *causes)
        low, high = self.gaps.start[chosen], self.gaps.end[chosen]
        opens, closes = np.append(True, low[1:] > high[:-1]), np.append(low[1:] > high[:-1], True)
        low, high = (low[opens], high[closes]) if len(chosen) else (low, high)
        return costliest(low, high, high - low)

    def idle_of(self, rows: I64, *causes: str) -> I64:
        """Returns the indices of the intervals in `gaps` that have one of `causes` and are due to
        some host events.

        `rows` are the events, as indices of rows of `timeline.host`.
        """
        return np.flatnonzero(self.gaps.lost_to(*causes) & np.isin(self.gaps.culprit, rows))


def costliest(start: I64, end: I64, cost: I64) -> tuple[tuple[int, int], ...]:
    """Returns the costliest of some intervals, as `(start, end)` in ns, sorted by time. Charts
    highlight them.

    Args:
        start: When each interval begins, in ns.
        end: When each interval ends, in ns.
        cost: The cost of each interval, by which the costliest are chosen.
    """
    chosen = np.argsort(-cost, kind="stable")[:_MOST_SPANS]
    chosen = chosen[np.argsort(start[chosen], kind="stable")]
    return tuple((int(start[i]), int(end[i])) for i in chosen)
