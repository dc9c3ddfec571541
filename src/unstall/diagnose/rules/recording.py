"""Finds how much time the recording itself took. The figures describe the recorded run, not the run
without a recorder.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import duration
from unstall.result import Finding
from unstall.timeline.columns import HostKind, Recorder

_WORTH = 0.002  # of the window
_SLOWER = 1.05
_TORCH_SLOWS = "recording slows every operator on the host (1.2x to 2.6x measured on an H200, most with stacks)"
_SLOWS: dict[Recorder | None, str] = {
    None: _TORCH_SLOWS,
    "torch": _TORCH_SLOWS,
    "cupti": "recording slows every call of CUDA, and Python at each new line",
}
_FIXES: dict[Recorder | None, str] = {
    None: "give the profiler a warm-up (schedule(wait=…, warmup=…)); compare with a run without stacks",
    "torch": "go by the figures without the recorder; --recorder cupti costs less, where it works",
    "cupti": "go by the figures without the recorder; --lines none costs less",
}


def recording(run: Run) -> list[Finding]:
    """Returns at most one finding: the recorder's own events took a notable time."""
    host, gaps = run.timeline.host, run.gaps
    overheads = np.flatnonzero((host.kind == HostKind.OVERHEAD) & run.inside)
    during = run.activity.recorder.covered(host.start[overheads], host.end[overheads])
    rows = overheads[during == (host.end - host.start)[overheads]]
    spent = run.activity.recorder.clip(*run.window).total
    exposed = int(run.activity.recorder.covered(gaps.start, gaps.end).sum())
    plain = run.timeline.meta.plain_step_ns
    slower = plain is not None and run.per_step(run.wall) > _SLOWER * plain
    if not slower and (not len(rows) or spent < _WORTH * run.wall):
        return []
    recorder = run.timeline.meta.recorder
    slows = _SLOWS[recorder]
    known = f"; a step takes {duration(plain)} when nothing records" if plain is not None else ""
    names = sorted({run.timeline.text(int(i)) for i in host.name[rows]})
    return [
        run.finding(
            "recording",
            Group(-1, None, rows),
            title="Work of the recorder, not of the program",
            saw=(f"{duration(spent)} went to {', '.join(names)}; beyond that, {slows}" if names else slows) + known,
            fix=_FIXES[recorder],
            safe_if="always",
            count=len(rows),
            total_wait_ns=spent,
            total_exposed_ns=exposed,
            harmless=True,
        )
    ]
