"""Finds costs that only the first steps have: making the context, loading modules, choosing
kernels, the first growth of the allocator's memory.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.diagnose.allocation import growing
from unstall.diagnose.run import Run
from unstall.figures import duration
from unstall.result import Finding

_WORTH = 0.005  # of the window
_LATER = {"": "profiler schedule with wait and warmup", "virtual": "--warmup, or leave first uses out: --warm"}


def first_use(run: Run) -> list[Finding]:
    """Returns a finding for each line at which a first use, such as loading a module, leaves the
    device idle.

    The finding's exposed time is the idle time during first uses. Idle time that is due to the
    recorder does not count. Later steps do not pay it, so the finding is marked as paid once, and
    needs no change.
    """
    host, gaps = run.timeline.host, run.gaps
    allocating = run.gaps_by("allocator")
    idle = np.union1d(run.gaps_by("startup"), allocating[np.isin(gaps.culprit[allocating], growing(run))])
    own = gaps.length[idle] - run.activity.recorder.covered(gaps.start[idle], gaps.end[idle])
    ours = (gaps.culprit[idle] >= 0) & (2 * own >= gaps.length[idle])
    idle, own = idle[ours], own[ours]
    cost = np.zeros(len(host), dtype=np.int64)
    np.add.at(cost, gaps.culprit[idle], own)
    findings = []
    for group in run.lines(np.unique(gaps.culprit[idle]).astype(np.int64)):
        exposed = int(cost[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        names = host.name[group.rows]
        by_name = [(int(cost[group.rows[names == name]].sum()), run.timeline.text(int(name))) for name in set(names)]
        shown = ", ".join(f"{text} ({duration(length)})" for length, text in sorted(by_name, reverse=True)[:4])
        findings.append(
            run.finding(
                "first-use",
                group,
                title="First use sets up CUDA, libraries or kernels",
                saw=f"the device waited for the first calls of {shown}",
                fix="warm up before you measure or serve: run each shape a few times first; record later steps "
                f"({_LATER.get(run.timeline.meta.recorder or '', '--warmup')})",
                safe_if="always",
                count=len(group.rows),
                total_wait_ns=0,
                total_exposed_ns=exposed,
                confidence="medium",
            )
        )
    return [msgspec.structs.replace(finding, harmless=True, once=True) for finding in findings]
