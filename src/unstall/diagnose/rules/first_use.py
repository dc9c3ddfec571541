"""What only the first steps pay: context, module loading, kernel selection, the allocator's first growth."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.allocation import growing
from unstall.diagnose.run import Group, Run
from unstall.diagnose.words import duration
from unstall.result import Finding

_WORTH = 0.002  # of the window


def first_use(run: Run) -> list[Finding]:
    """One finding for the whole run, at its costliest place."""
    gaps = run.gaps
    idle = run.gaps_by("startup")
    idle = np.union1d(idle, np.flatnonzero(np.isin(gaps.culprit, growing(run))))
    idle = idle[gaps.culprit[idle] >= 0]
    exposed = int(gaps.length[idle].sum())
    if not len(idle) or exposed < _WORTH * run.wall:
        return []
    rows, which = np.unique(gaps.culprit[idle].astype(np.int64), return_inverse=True)
    cost = np.zeros(len(rows), dtype=np.int64)
    np.add.at(cost, which, gaps.length[idle])
    costliest = rows[cost.argmax()]
    names = run.timeline.host.name[rows]
    listed = sorted(
        ((int(cost[names == name].sum()), run.timeline.text(int(name))) for name in np.unique(names)), reverse=True
    )
    shown = ", ".join(f"{text} ({duration(length)})" for length, text in listed[:4])
    group = Group(int(run.places.place[costliest]), run.places.op_name(int(costliest)), rows)
    return [
        run.finding(
            "first-use",
            group,
            title="First-use cost: paid once, not in the steady state",
            saw=f"the device waited while these ran for the first time, or the recorder set up: {shown}",
            fix="warm up before you measure or serve: run each shape a few times first; record later steps "
            "(profiler schedule with wait and warmup)",
            safe_if="always",
            count=len(rows),
            wait_ns=0,
            exposed_ns=exposed,
            confidence="medium",
        )
    ]
