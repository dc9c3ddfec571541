"""The device waits while the host works at something that is no dispatching: Python, numpy, CPU operators."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.result import Finding
from unstall.timeline import HostKind

_WORTH = 0.02  # of the window
_MOST_PLACES = 3  # recording with stacks makes many small ones


def python_bound(run: Run) -> list[Finding]:
    """One finding a line: the frame that ran meanwhile; without stacks, the place that launched next."""
    lost = run.lost_to("python")
    findings = []
    for group in run.lines(np.flatnonzero(lost)):
        exposed = int(lost[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        pauses = run.idle_of(group.rows, "python")
        ran = run.timeline.host.kind[group.rows] == HostKind.PYTHON
        least = run.activity.python_least_ns // 1000
        findings.append(
            run.finding(
                "python-bound",
                group,
                title="The device waits while the host computes in Python"
                if ran.all()
                else "The device waits while the host does something else",
                saw=f"{counted(len(pauses), 'idle stretch')} of {duration(round(exposed / len(pauses)))} (mean), as "
                f"the host dispatched nothing for {least} µs or more: "
                f"{_within(run, group) if ran.all() else 'this came next'}",
                fix="move that work off the critical path: to a thread or a worker process, to the device, or to "
                "after the next step's launches",
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
