"""Finds copies from pinned memory that block the host: `non_blocking=True` is missing, or the call is synchronous."""

from __future__ import annotations

from unstall.diagnose.copies import uploads, with_waits
from unstall.diagnose.run import Group, Run
from unstall.figures import counted
from unstall.result import Finding
from unstall.timeline.columns import HostKind, HostMemory
from unstall.ways_to_wait import PINNED_UPLOAD


def blocking_pinned_copy(run: Run) -> list[Finding]:
    """Returns a finding for each line that waits for copies from pinned memory to the device.

    A line may wait in a synchronisation right after the copy, or in a copy call that is
    synchronous. A line that waits in both ways has two findings.
    """
    host = run.timeline.host
    rows = with_waits(run, uploads(run, HostMemory.PINNED))
    rows = rows[run.waited[rows] > 0]
    is_sync = host.kind[rows] == HostKind.SYNC
    return [
        *(
            _finding(
                run,
                group,
                title=PINNED_UPLOAD.title,
                how="each followed by a wait for the stream",
                fix=PINNED_UPLOAD.fix,
            )
            for group in run.groups(rows[is_sync])
        ),
        *(
            _finding(
                run,
                group,
                title="Copies from pinned memory wait, because the call is synchronous",
                how=f"by {run.timeline.text(int(host.name[group.rows[0]]))}, which returns when the copy is done",
                fix="copy with .to(device, non_blocking=True), or cudaMemcpyAsync on a stream",
            )
            for group in run.groups(rows[~is_sync])
        ),
    ]


def _finding(run: Run, group: Group, *, title: str, how: str, fix: str) -> Finding:
    exposed = int(run.exposed_by_waits[group.rows].sum())
    return run.finding(
        "blocking-pinned-copy",
        group,
        title=title,
        saw=f"{counted(len(group.rows), 'upload')} from pinned memory, {how}",
        fix=fix,
        safe_if=PINNED_UPLOAD.safe_if,
        count=len(group.rows),
        total_wait_ns=int(run.waited[group.rows].sum()),
        total_exposed_ns=exposed,
        edit="pin-copies",
        harmless=run.negligible(exposed),
    )
