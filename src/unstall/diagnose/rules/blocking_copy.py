"""Copies to the device from host memory of unknown kind (pageable or pinned). These copies block the host.

Traces of ROCm never name the kind of host memory.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.copies import uploads, with_waits
from unstall.diagnose.run import Run
from unstall.figures import counted
from unstall.result import Finding
from unstall.timeline.columns import HostMemory


def blocking_copy(run: Run) -> list[Finding]:
    """Returns a finding for each line that waited for copies to the device from host memory of
    unknown kind (pageable or pinned).

    Copies for which the host did not wait have no finding.
    """
    copies = uploads(run, HostMemory.UNKNOWN)
    findings = []
    for group in run.groups(with_waits(run, copies)):
        blocked = group.rows[run.waited[group.rows] > 0]
        if not len(blocked):
            continue
        mine = np.intersect1d(run.ops_of(group.rows), copies)
        exposed = int(run.exposed_by_waits[group.rows].sum())
        calls = sorted({run.timeline.text(int(name)) for name in run.timeline.host.name[blocked]})
        findings.append(
            run.finding(
                "blocking-copy",
                group,
                title="Copies to the device block the host",
                saw=f"{counted(len(mine), 'upload')}; the host was blocked in {', '.join(calls)}; the file does not "
                "say whether the memory is pageable (copies always block) or pinned (copies need not block)",
                fix="pin the source if it is not (DataLoader(pin_memory=True), or tensor.pin_memory() once), and pass "
                "non_blocking=True: .to(device, non_blocking=True); or take batches from unstall.prefetch(loader)",
                safe_if="the pinned source is not written before the copy has ended",
                count=len(mine),
                total_wait_ns=int(run.waited[blocked].sum()),
                total_exposed_ns=exposed,
                edit="pin-copies",
                confidence="medium",
                harmless=run.negligible(exposed),
            )
        )
    return findings
