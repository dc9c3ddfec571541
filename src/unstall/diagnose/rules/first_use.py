"""Finds costs that only the first steps have: making the context, loading modules, choosing
kernels, the first growth of the allocator's memory.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.diagnose.allocation import growing
from unstall.diagnose.run import Group, Run
from unstall.figures import duration
from unstall.result import Finding

_WORTH = 0.005  # of the window
_FEWEST, _MOSTLY = 3, 0.5  # how many steps there must be, and in which share of them a use that recurs happens
_LATER = {"": "profiler schedule with wait and warmup", "virtual": "--warmup, or leave first uses out: --warm"}
_IN_EACH_STEP = (
    "Each step has a first use that sets up libraries or kernels",
    "give the operators the same shapes in each step: a cache of fixed length, or lengths padded to a few sizes; for "
    "attention whose keys grow, torch.backends.cuda.enable_cudnn_sdp(False) needs no plans",
    "padding is masked, so that results stay the same",
)
"""The title, the fix, and when the fix is safe."""


def first_use(run: Run) -> list[Finding]:
    """Returns a finding for each line at which a first use, such as loading a module, leaves the
    device idle.

    The finding's exposed time is the idle time during first uses. Idle time that is due to the
    recorder does not count. If only some steps pay it, the finding is marked as paid once, and
    needs no change. If most steps do, each has something new, such as a shape for which a library chooses kernels.
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
        recurs = _recurs(run, group)
        title, fix, safe_if = _IN_EACH_STEP if recurs else _once(run)
        found = run.finding(
            "first-use",
            group,
            title=title,
            saw=f"the device waited for the first calls of {shown}",
            fix=fix,
            safe_if=safe_if,
            count=len(group.rows),
            total_wait_ns=0,
            total_exposed_ns=exposed,
            confidence="medium",
        )
        findings.append(replace(found, harmless=not recurs, once=not recurs))
    return findings


def _recurs(run: Run, group: Group) -> bool:
    seen = run.steps_with(run.timeline.host.start[group.rows])
    return len(run.steps) >= _FEWEST and seen > _MOSTLY * len(run.steps)


def _once(run: Run) -> tuple[str, str, str]:
    later = _LATER.get(run.timeline.meta.recorder or "", "--warmup")
    return (
        "First use sets up CUDA, libraries or kernels",
        f"warm up before you measure or serve: run each shape a few times first; record later steps ({later})",
        "always",
    )
