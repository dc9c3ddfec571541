"""What the recording itself cost and what it missed: the figures are of the recorded run, not of the plain one."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.diagnose.spans import Spans
from unstall.diagnose.words import duration
from unstall.result import Finding
from unstall.timeline import HostKind

_WORTH = 0.002  # of the window


def recording(run: Run) -> list[Finding]:
    """At most one finding: the recorder's own events, where they took more than a trifle."""
    host = run.timeline.host
    rows = np.flatnonzero((host.kind == HostKind.OVERHEAD) & run.inside)
    spent = Spans.union(host.start[rows], host.end[rows]).clip(*run.window).total
    if spent < _WORTH * run.wall:
        return []
    names = sorted({run.timeline.text(int(i)) for i in host.name[rows]})
    return [
        run.finding(
            "recording",
            Group(-1, None, rows),
            title="The recorder itself took part of this time",
            saw=f"{duration(spent)} went to {', '.join(names)}; beyond that, recording slows every operator on the "
            "host (1.2x to 2.6x measured on an H200, most with stacks)",
            fix="give the profiler a warm-up (schedule(wait=…, warmup=…)); compare with a run without stacks",
            safe_if="always",
            count=len(rows),
            wait_ns=spent,
            exposed_ns=0,
            harmless=True,
        )
    ]
