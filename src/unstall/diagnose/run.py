"""The class `Run`: a recorded run, of which findings are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from unstall.diagnose.run_times import RunTimes
from unstall.locate.framework_code import FrameworkCode
from unstall.locate.frameworks import Framework, Option
from unstall.locate.kinds import named
from unstall.locate.operations import has_operators
from unstall.locate.platform import Platform, in_words_of, platform
from unstall.locate.proving import EAGERLY, FOR_SPEED, called_without_graph
from unstall.result import Confidence, Finding, Where
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool
from unstall.timeline.grouping import groups
from unstall.what_if.place import EditPlace, graph_of

_MOST_SPANS = 100
_EDITS_THE_LINE = re.compile(r"sync-|.*-copy$|launch-bound$|tiny-kernels$")  # rules whose advice changes that line


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


class Run(RunTimes, frozen=True, eq=False, dict=True, weakref=True):
    """A recorded run, of which findings are made: its events in groups by source line, and the finding of a group, in
    the words of the run's platform and frameworks.
    """

    @cached_property
    def without_graph(self) -> dict[str, Bool]:
        """For each way in which `unstall.graphed` calls a function without a graph, `EAGERLY` and `FOR_SPEED`: whether
        each row of `timeline.host` happens in such a call.
        """
        return {method: called_without_graph(self.timeline, method) for method in (EAGERLY, FOR_SPEED)}

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
        leaves_packages: bool = False,
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
            leaves_packages: Whether the user can follow `fix` without a change of installed packages.
            spans: The times that a chart highlights, as (start, end) in ns. If None, those of the
                group's costliest events.
        """
        rows = group.rows
        say = self.in_its_words
        wait = int(self.host_length[rows].sum()) if total_wait_ns is None else total_wait_ns
        where = self.where(group)
        found = self.framework_code.option_for(rule, group.place, rows)
        fix, safe_if = self._for_the_user(rule, found, where, fix, safe_if, leaves_packages=leaves_packages)
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
        self,
        rule: str,
        found: tuple[Framework, Option] | None,
        where: Where,
        fix: str,
        safe_if: str,
        *,
        leaves_packages: bool,
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
        if package is None or leaves_packages or not _EDITS_THE_LINE.match(rule):
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
