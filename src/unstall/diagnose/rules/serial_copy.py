"""Finds copies that run alone, on the stream of the computation, although they could overlap with the computation."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import counted, share, size
from unstall.result import Finding
from unstall.timeline.columns import I64, CopyDirection, DeviceKind
from unstall.what_if.edits.overlap_copies import ASSUMED

_WORTH = 0.01  # of the window


def _of_data(run: Run, copies: I64) -> str:
    """Returns a text on the data of the device ops `copies`. Returns "" if all of their data are used, as is usual.

    If it is not known which kernels use the data of an upload, the gain rests on an assumption, and the text says so.
    """
    device, uploads = run.timeline.device, run.timeline.uploads
    up = copies[device.direction[copies] == CopyDirection.HOST_TO_DEVICE]
    if not len(up):
        return ""
    known = np.isin(uploads.call, device.launch[up])
    if not known.any():
        return f"; {ASSUMED}"
    unused = int((uploads.first_use[known] < 0).sum())
    return f"; nothing here uses the data of {unused:,} of them" if unused else ""


def serial_copy(run: Run) -> list[Finding]:
    """Returns a finding for each line whose copies to or from the device run on the stream of the
    computation.

    The finding's exposed time is the time in which these copies ran and no kernel ran. Waits for
    these copies are left out, because the rules on pageable and pinned copies report them.
    """
    device = run.timeline.device
    kernels = (device.kind != DeviceKind.COPY) & run.ops_inside
    beside = run.work(kernels)
    crossing = (device.direction == CopyDirection.HOST_TO_DEVICE) | (device.direction == CopyDirection.DEVICE_TO_HOST)
    shared = np.isin(device.stream, np.unique(device.stream[kernels]))
    copies = np.flatnonzero(
        (device.kind == DeviceKind.COPY) & crossing & shared & run.ops_inside & (device.launch >= 0)
    )
    findings = []
    for group in run.groups(np.unique(device.launch[copies]).astype(np.int64)):
        mine = np.intersect1d(run.ops_of(group.rows), copies)
        exposed = run.alone(mine, beside)
        if exposed < _WORTH * run.wall:
            continue
        copied = int(np.maximum(device.bytes[mine], 0).sum())
        findings.append(
            run.finding(
                "serial-copy",
                group,
                title="Copies run in line with the computation, though they could overlap with it",
                saw=f"{counted(len(mine), 'copy')} ({size(copied)}) on the computing stream; "
                f"{share(exposed, run.wall)} of the time the device copied and computed nothing"
                f"{_of_data(run, mine)}",
                fix="copy the next batch or layer on a second stream while this one computes: pinned source, "
                "non_blocking=True, wait_stream before use, record_stream after (unstall.prefetch and "
                "unstall.stream_map do so)",
                safe_if="the data of the next copy does not depend on the computation it would overlap with",
                count=len(mine),
                total_wait_ns=0,
                total_exposed_ns=exposed,
                edit="overlap-copies",
                confidence="medium",
            )
        )
    return findings
