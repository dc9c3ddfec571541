"""Copies from pageable host memory: staged by the driver, so they block the host and cannot overlap."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.copies import uploads, with_waits
from unstall.diagnose.run import Run
from unstall.figures import counted
from unstall.result import Finding
from unstall.timeline import HostMemory


def pageable_copy(run: Run) -> list[Finding]:
    """One finding a line. `wait` is the copy calls and the syncs that belong to them."""
    device = run.timeline.device
    copies = uploads(run, HostMemory.PAGEABLE)
    findings = []
    for group in run.groups(with_waits(run, copies)):
        mine = np.intersect1d(run.ops_of(group.rows), copies)
        size = int(np.maximum(device.bytes[mine], 0).sum())
        taken = int((device.end - device.start)[mine].sum())
        exposed = int(run.exposed_by_waits[group.rows].sum())
        blocked = group.rows[run.waited[group.rows] > 0]
        busy = run.busy_during(blocked)
        rate = f", at {size / taken:.1f} GB/s" if taken and size else ""
        findings.append(
            run.finding(
                "pageable-copy",
                group,
                title="Copies from pageable host memory block the host",
                saw=f"{counted(len(mine), 'upload')}, {size / 1e6:,.1f} MB in all{rate}: the driver stages pageable "
                f"memory piece by piece and the host waits, non_blocking=True or not; the device was at work "
                f"for {busy:.0%} of that wait",
                fix="pin the source (DataLoader(pin_memory=True), or tensor.pin_memory() once), "
                "then .to(device, non_blocking=True)",
                safe_if="the pinned source is not written before the copy has ended",
                count=len(mine),
                total_exposed_ns=exposed,
                total_wait_ns=int(run.waited[group.rows].sum()),
                edit="pin-copies",
                harmless=run.negligible(exposed + taken),
            )
        )
    return findings
