"""Finds copies from pageable host memory. The driver stages the data, so the copies block the host
and cannot overlap with other work.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.copies import copying_ns, uploads, with_waits
from unstall.diagnose.copy_sources import CopySource, source_of_copies
from unstall.diagnose.run import Run
from unstall.figures import counted, size
from unstall.result import Finding
from unstall.timeline.columns import HostMemory
from unstall.timeline.copies import STAGED_AT_ONCE_BYTES
from unstall.ways_to_wait import PAGEABLE_UPLOAD

_AT_ONCE = "the host waits for each copy and for all work before it, unless non_blocking=True"
_STAGED = "the driver stages pageable memory piece by piece while the host waits, even with non_blocking=True"


def pageable_copy(run: Run) -> list[Finding]:
    """Returns a finding for each line that copies from pageable host memory to the device.

    The finding's wait is the time in the copy calls and in the synchronisations that wait for the
    copies.
    """
    device = run.timeline.device
    copies = uploads(run, HostMemory.PAGEABLE)
    findings = []
    for group in run.groups(with_waits(run, copies)):
        mine = np.intersect1d(run.ops_of(group.rows), copies)
        moved = int(np.maximum(device.bytes[mine], 0).sum())
        taken = int((device.end - device.start)[mine].sum())
        exposed = int(run.exposed_by_waits[group.rows].sum())
        blocked = group.rows[run.waited[group.rows] > 0]
        busy = run.busy_during(blocked)
        small = moved <= STAGED_AT_ONCE_BYTES * len(mine)
        fix, safe_if, edit = _remedy(
            source_of_copies(run, np.unique(device.launch[mine]).astype(np.int64)), small=small, once=len(mine) == 1
        )
        # The time of small copies is mostly the call's, so a rate would be meaningless.
        rate = f", at {moved / copying_ns(run, mine):.1f} GB/s" if taken and not small else ""
        why = _AT_ONCE if small else _STAGED
        findings.append(
            run.finding(
                "pageable-copy",
                group,
                title=PAGEABLE_UPLOAD.title,
                saw=f"{counted(len(mine), 'upload')}, {size(moved)} in all{rate}: {why}; the device worked for "
                f"{100 * busy:.0f} % of that wait",
                fix=fix,
                safe_if=safe_if,
                count=len(mine),
                total_exposed_ns=exposed,
                total_wait_ns=int(run.waited[group.rows].sum()),
                edit=edit,
                harmless=run.negligible(exposed + taken),
            )
        )
    return findings


def _remedy(source: CopySource, *, small: bool, once: bool) -> tuple[str, str, str]:
    """Returns (fix, safe_if, edit): the advice, the condition under which the advice is safe, and the what-if edit.

    The edit predicts the gain of the advice.
    """
    if source == "made" and small and once:
        return (
            "make the tensor on the device (torch.full, torch.arange with device=…)",
            "its values can be computed there",
            "make-on-device",
        )
    if source == "made" and small:
        return (
            "the tensor is made anew on the host each time: make it on the device (torch.full, torch.arange with "
            "device=…), or once before the loop; pinning it each time costs more than it saves",
            "its values do not depend on data of the host; if they do, copy them into a pinned buffer that you keep",
            "make-on-device",
        )
    if source == "made":
        return (
            "the tensor is made anew on the host each time: copy it into a pinned buffer that you keep, then "
            ".to(device, non_blocking=True); or make it on the device; pin_memory() each time costs more than it saves",
            "the pinned buffer is not written before its last copy has ended",
            "reuse-pinned",
        )
    if source == "loader":
        return (
            "DataLoader(num_workers=1 or more, pin_memory=True), then .to(device, non_blocking=True): without workers, "
            "this thread would have to pin; or unstall.prefetch(loader), which stages on a thread of its own",
            "the dataset can be read from another process",
            "reuse-pinned",
        )
    if source == "derived":
        return (
            "the tensor is made on the host from a DataLoader's batch: copy the batch itself, pinned by DataLoader("
            "num_workers=1 or more, pin_memory=True), with .to(device, non_blocking=True), and make the tensor on the "
            "device; or make it in the dataset",
            "the batch fits on the device, and the dataset can be read from another process",
            "reuse-pinned",
        )
    if source == "workers":
        return (
            "DataLoader(pin_memory=True), which pins the workers' batches on a thread of its own, and .to(device, "
            "non_blocking=True); or take batches from unstall.prefetch(loader)",
            "a batch holds tensors, in tuples, lists or dicts, or has a pin_memory() of its own",
            "pin-copies",
        )
    if small:
        return (
            "pass non_blocking=True: .to(device, non_blocking=True). A copy of up to 64 KiB needs no pinned memory: "
            "the driver takes the data at once, and the host goes on",
            "the program measures no time by this wait",
            "pin-copies",
        )
    return PAGEABLE_UPLOAD.fix, PAGEABLE_UPLOAD.safe_if, "pin-copies"
