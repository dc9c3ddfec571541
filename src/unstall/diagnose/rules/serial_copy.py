"""Copies that run alone, in line with the computation on one stream, where they could overlap with it."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.spans import Spans
from unstall.figures import share
from unstall.result import Finding
from unstall.timeline import CopyDirection, DeviceKind

_WORTH = 0.01  # of the window


def serial_copy(run: Run) -> list[Finding]:
    """One finding a line. `exposed` is the time in which these copies ran and nothing computed."""
    device = run.timeline.device
    kernels = (device.kind != DeviceKind.COPY) & run.ops_inside
    compute = Spans.union(device.start[kernels], device.end[kernels])
    crossing = (device.direction == CopyDirection.HOST_TO_DEVICE) | (device.direction == CopyDirection.DEVICE_TO_HOST)
    shared = np.isin(device.stream, np.unique(device.stream[kernels]))
    copies = np.flatnonzero(
        (device.kind == DeviceKind.COPY) & crossing & shared & run.ops_inside & (device.launch >= 0)
    )
    length = (device.end - device.start)[copies]
    alone = length - compute.covered(device.start[copies], device.end[copies])
    by_call = np.zeros(len(run.timeline.host), dtype=np.int64)
    np.add.at(by_call, device.launch[copies], alone)
    findings = []
    for group in run.groups(np.unique(device.launch[copies]).astype(np.int64)):
        exposed = int(by_call[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        mine = run.ops_of(group.rows)
        size = int(np.maximum(device.bytes[mine], 0).sum())
        findings.append(
            run.finding(
                "serial-copy",
                group,
                title="Copies run in line with the computation, though they could overlap with it",
                saw=f"{len(mine):,} copies ({size / 1e6:,.1f} MB) on the computing stream; "
                f"{share(exposed, run.wall)} of the time the device copied and computed nothing",
                fix="copy the next batch or layer on a second stream while this one computes: pinned source, "
                "non_blocking=True, wait_stream before use, record_stream after",
                safe_if="the data of the next copy does not depend on the computation it would overlap with",
                count=len(mine),
                exposed_ns=exposed,
                edit="overlap-copies",
                confidence="medium",
            )
        )
    return findings
