"""Finds lines that copy the same bytes to the device again and again, though they could stay there."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import counted, size
from unstall.result import Finding
from unstall.timeline.columns import I64, DeviceKind
from unstall.what_if.edits.keep_on_device import repeated


def repeated_upload(run: Run) -> list[Finding]:
    """Returns a finding for each line in a loop that copies bytes to the device that an earlier copy
    has already copied.

    The finding's exposed time is the time in which these copies ran and no kernel ran. Waits for
    these copies are left out, because the rules on pageable and pinned copies report them. There
    are findings only if the recorder knows the bytes, as the virtual GPU does.
    """
    uploads, device = run.timeline.uploads, run.timeline.device
    again = repeated(uploads)
    again = again[run.inside[uploads.call[again]]]
    beside = run.work((device.kind != DeviceKind.COPY) & run.ops_inside)
    findings = []
    for group in run.groups(uploads.call[again].astype(np.int64)):
        mine = again[np.isin(uploads.call[again], group.rows)]
        all_there = np.flatnonzero(run.places.place[uploads.call] == group.place)
        if len(mine) == 1 and not _in_each_step(run, all_there):
            continue
        ops = run.ops_of(group.rows)
        exposed = run.alone(ops, beside)
        if run.negligible(exposed + int(run.exposed_by_waits[group.rows].sum())):
            continue
        contents, first = np.unique(uploads.content[mine], return_index=True)
        order = np.argsort(device.launch[ops], kind="stable")
        at = np.searchsorted(device.launch[ops][order], uploads.call[mine[first]])
        kept = int(np.maximum(device.bytes[ops[order[np.minimum(at, len(ops) - 1)]]], 0).sum())
        moved = int(np.maximum(device.bytes[ops], 0).sum())
        what = "tensor" if len(contents) == 1 else "tensors"
        findings.append(
            run.finding(
                "repeated-upload",
                group,
                title="The same bytes are copied to the device again and again",
                saw=f"{len(mine):,} of {counted(len(all_there), 'copy')} there repeat bytes that were copied before: "
                f"{size(moved)} in all, of {counted(len(contents), 'different tensor')} with {size(kept)}",
                fix=f"copy the {what} once, before the loop, and keep {'it' if len(contents) == 1 else 'them'} on the "
                "device",
                safe_if=f"the device has room for {size(kept)} all the time, and nothing changes the {what} in place: "
                "else keep a copy that is cloned on the device",
                count=len(mine),
                total_wait_ns=0,
                total_exposed_ns=exposed,
                edit="keep-on-device",
            )
        )
    return findings


def _in_each_step(run: Run, copies: I64) -> bool:
    """Returns whether a line copied the same bytes twice in all, in two steps.

    Within one step, two copies at a line need not be a loop's: a function may be called twice. If the line copies other
    bytes, too, one repetition may be chance. `copies` are all copies of the line, as rows of `timeline.uploads`.
    """
    uploads = run.timeline.uploads
    calls = uploads.call[copies]
    same = len(copies) == 2 and uploads.content[copies[0]] == uploads.content[copies[1]]
    return bool(same and run.inside[calls].all()) and run.steps_with(run.timeline.host.start[calls]) == 2
