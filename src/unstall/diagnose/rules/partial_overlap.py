"""Finds copies on a stream of their own that overlap with the computation only in part. Either the
copies take longer than the computation, or the copies start late.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.streams import LONELY, overlap
from unstall.figures import counted, duration, share, size
from unstall.result import Finding
from unstall.timeline.columns import I64, CopyDirection, DeviceKind

_WORTH = 0.05  # of the window


def partial_overlap(run: Run) -> list[Finding]:
    """Returns a finding for each line whose copies overlap with computation only in part.

    The finding's exposed time is the time in which these copies ran and no kernel ran. Copies on a
    stream that overlaps with almost nothing are left out, because the rule `lonely_stream` reports
    them.
    """
    device = run.timeline.device
    kernels = (device.kind != DeviceKind.COPY) & run.ops_inside
    beside = run.work(kernels)
    crossing = (device.direction == CopyDirection.HOST_TO_DEVICE) | (device.direction == CopyDirection.DEVICE_TO_HOST)
    apart = ~np.isin(device.stream, np.unique(device.stream[kernels]))
    copies = np.flatnonzero((device.kind == DeviceKind.COPY) & crossing & apart & run.ops_inside & (device.launch >= 0))
    for number, stream in _streams(run, copies):
        work, both = overlap(run, number, stream)
        if both <= LONELY * work:
            copies = copies[(device.device[copies] != number) | (device.stream[copies] != stream)]
    findings = []
    for group in run.groups(np.unique(device.launch[copies]).astype(np.int64)):
        mine = np.intersect1d(run.ops_of(group.rows), copies)
        exposed, total = run.alone(mine, beside), run.alone(mine, {})
        if exposed < _WORTH * run.wall:
            continue
        copied = int(np.maximum(device.bytes[mine], 0).sum())
        rate = f", {copied / total:.1f} GB/s" if copied else ""
        computing = sum(spans.clip(*run.window).total for spans in beside.values())
        longer = total > computing
        findings.append(
            run.finding(
                "partial-overlap",
                group,
                title="Copies take longer than the computation beside them"
                if longer
                else "Copies overlap with the computation only in part",
                saw=f"{counted(len(mine), 'copy')} ({size(copied)}) in {duration(total)}{rate}; nothing "
                f"computes for {share(exposed, total)} of that time; all computation takes {duration(computing)}",
                fix="copy less: keep part of it on the device, or send a smaller type (bfloat16, int8); or compute "
                "more with each copy (a larger batch)"
                if longer
                else "start them earlier, further ahead of the computation that needs them, into two buffers or more",
                safe_if="the device has memory for what stays there, and the smaller type is precise enough"
                if longer
                else "the device has memory for the buffers, and the data to copy is known that early",
                total_exposed_ns=exposed,
                total_wait_ns=0,
                count=len(mine),
                confidence="medium",
            )
        )
    return findings


def _streams(run: Run, ops: I64) -> list[tuple[int, int]]:
    """Returns the distinct (device, stream) pairs of the device ops `ops`."""
    device = run.timeline.device
    pairs = np.unique(np.stack([device.device[ops], device.stream[ops]]), axis=1)
    return [(number, stream) for number, stream in pairs.T.tolist()]
