"""Finds lines of Python that keep the host from launching while the device is idle: the host runs
Python, numpy or CPU operators, or sleeps. torch's own Python code counts as dispatching, so it is
not among them.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.locate.kinds import is_waiting_for_thread
from unstall.locate.operations import has_operators
from unstall.locate.torch_code import called_by_torch
from unstall.result import Finding
from unstall.timeline.columns import HostKind
from unstall.timeline.grouping import groups

_WORTH = 0.02  # of the window
_MOSTLY = 0.5
_MOST_PLACES = 3  # recordings with stacks have many small places
_OFTEN = 0.5  # of the steps; a pause in fewer is jitter of the host, if it is short
_LONG = 0.1  # of the window
_SLEEPS = "The device waits while the host sleeps, or waits for another process, a connection or a file"
_WAITS = "The device waits while the host waits for another thread"
_COMPUTES = "The device waits while the host computes in Python"
_DOES = "The device waits while the host does something else"
_WAIT_ELSEWHERE = (
    "wait for that on another thread, or after the next step's launches, so that the device has work by then"
)
_BEGIN_EARLIER = (
    "start that thread's work earlier, let it hand over more at a time, or ask it after the next step's launches"
)
_WORK_ELSEWHERE = (
    "move that work off the critical path: to a thread or a worker process, to the device, or to after the next step's "
    "launches"
)
_WHOSE_IS_UNKNOWN = (
    "what ran is not in the recording. If it is your code, {own}. If it is torch's own (calls of modules, the "
    "optimizer, the start of a backward pass), capture the step in a CUDA graph (unstall.graphed), or let each step do "
    "more"
)


def python_bound(run: Run) -> list[Finding]:
    """Returns a finding for each line of Python that ran for long while the device was idle.

    If the line is unknown, the finding is at the line of the next launch.
    """
    lost, of_threads = run.lost_to("python"), is_waiting_for_thread(run.timeline)
    idle = run.accounts.idle_ns
    findings = []
    for group in run.lines(np.flatnonzero(lost)):
        exposed = int(lost[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        pauses = run.idle_of(group.rows, "python")
        pauses = pauses[run.gaps.behind[pauses] < 0]  # not their last microseconds again
        ran = run.timeline.host.kind[group.rows] == HostKind.PYTHON
        kinds = (
            (np.isin(group.rows, run.activity.asleep_rows), _SLEEPS, _WAIT_ELSEWHERE),
            (of_threads[group.rows], _WAITS, _BEGIN_EARLIER),
            (ran, _COMPUTES, _WORK_ELSEWHERE),
        )
        of_all = ((title, fix) for rows, title, fix in kinds if rows.all())
        title, fix = next(of_all, (_DOES, _WORK_ELSEWHERE))
        # A slow host dispatches late here and there, too: that is what a launch-bound run is.
        jitter = run.steps_with(run.gaps.end[pauses]) < _OFTEN * len(run.steps) or idle.launch > idle.python
        if title is _DOES and jitter and exposed < _LONG * run.wall:
            continue
        unknown = title is _DOES and not run.timeline.meta.free_work  # which says that it is not torch's own
        if unknown and called_by_torch(run.places, group.rows).mean() > _MOSTLY:
            fix = _WHOSE_IS_UNKNOWN.format(own=fix)
        least = run.activity.python_least_ns // 1000
        findings.append(
            run.finding(
                "python-bound",
                group,
                title=title,
                saw=f"{counted(len(pauses), 'idle stretch')} of {duration(round(exposed / len(pauses)))} (mean), in "
                f"which the host launched nothing for {least} µs or more: "
                f"{_within(run, group) if ran.all() else f'this line came next{_after(run, group)}'}",
                fix=fix,
                safe_if="the next launches do not need its result",
                total_wait_ns=0,
                total_exposed_ns=exposed,
                count=len(pauses),
                confidence="medium",
                spans=run.idle_spans(group.rows, "python"),
            )
        )
    return sorted(findings, key=lambda finding: -finding.exposed_ns)[:_MOST_PLACES]


def _within(run: Run, group: Group) -> str:
    lines = run.timeline.lines
    if not 0 <= group.place < len(lines):
        return "it was in Python"
    return "it was at this line" if lines.exact[group.place] else "it was within this function"


def _after(run: Run, group: Group) -> str:
    """Returns a text that names the line of the last call before each of the group's events, or "".

    The text names a line only if the last call before most of the events is at this line, and if this line is not the
    group's own line. Usually, only calls on the event's thread count. For events on autograd's threads, calls on any
    thread count, because these events are started by backward() on another thread. If no operators were recorded, calls
    on any thread count for all events, because autograd's threads cannot be identified.
    """
    host = run.timeline.host
    operation = run.places.operation[group.rows]
    begun = host.start[np.where(operation >= 0, operation, group.rows)]
    before = np.full(len(group.rows), -1)
    of_any = (host.forward[group.rows] >= 0) | (not has_operators(run.timeline))
    for thread, mine in groups(np.where(of_any, -1, host.thread[group.rows])):
        rows = np.flatnonzero(((host.thread == thread) | (thread < 0)) & (host.kind <= HostKind.CALL))
        rows = rows[np.argsort(host.end[rows], kind="stable")]
        at = np.searchsorted(host.end[rows], begun[mine], side="right") - 1
        before[mine] = np.where(at >= 0, rows[at], -1)
    most = max(run.lines(before[before >= 0]), key=lambda line: len(line.rows), default=None)
    if most is None or most.place == group.place or len(most.rows) < _MOSTLY * len(group.rows):
        return ""
    where = run.where(most)
    if where.file is None:
        return ""
    return f", after {where.file}:{where.line} {where.function}"
