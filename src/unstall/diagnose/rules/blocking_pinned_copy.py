"""Copies from pinned memory that block all the same, for want of `non_blocking=True`."""

from __future__ import annotations

from unstall.diagnose.copies import uploads, with_waits
from unstall.diagnose.run import Run
from unstall.figures import counted
from unstall.result import Finding
from unstall.timeline import HostKind, HostMemory


def blocking_pinned_copy(run: Run) -> list[Finding]:
    """One finding a line: pinned copies whose operator waits for its stream right after."""
    host = run.timeline.host
    copies = uploads(run, HostMemory.PINNED)
    findings = []
    for group in run.groups(with_waits(run, copies)):
        waits = group.rows[host.kind[group.rows] == HostKind.SYNC]
        if not len(waits):
            continue
        exposed = int(run.exposed_by_waits[group.rows].sum())
        findings.append(
            run.finding(
                "blocking-pinned-copy",
                group,
                title="Copies from pinned memory wait, because non_blocking=True is missing",
                saw=f"{counted(len(waits), 'upload')} from pinned memory, each followed by a wait for the stream",
                fix="pass non_blocking=True: .to(device, non_blocking=True)",
                safe_if="the pinned source is not written before the copy has ended",
                count=len(waits),
                total_exposed_ns=exposed,
                total_wait_ns=int(run.waited[waits].sum()),
                edit="pin-copies",
                harmless=run.negligible(exposed),
            )
        )
    return findings
