"""The device waits while the host works at something that is no dispatching: Python, numpy, CPU operators."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import counted, duration
from unstall.result import Finding

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
        findings.append(
            run.finding(
                "python-bound",
                group,
                title="The device waits while the host computes in Python",
                saw=f"{counted(len(group.rows), 'pause')} of 100 µs or more in which this ran and no operator did, "
                f"{duration(round(exposed / len(group.rows)))} each (mean)",
                fix="move that work off the critical path: to a thread or a worker process, to the device, or to "
                "after the next step's launches",
                safe_if="the next launches do not need its result",
                total_wait_ns=0,
                total_exposed_ns=exposed,
                count=len(group.rows),
                confidence="medium",
            )
        )
    return sorted(findings, key=lambda finding: -finding.exposed_ns)[:_MOST_PLACES]
