"""Finds devices that take turns: each device has a part of the model, and is idle while another device computes."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.devices import waits_for_others
from unstall.diagnose.run import Run, costliest
from unstall.figures import counted, duration, share
from unstall.result import Finding

_WORTH = 0.05  # of the window


def serial_devices(run: Run) -> list[Finding]:
    """Returns a finding for each line whose work could not begin while another device worked.

    The work waited for an event, and its own device was idle until then. The finding's exposed time
    is this idle time, as a mean over all devices.
    """
    turns = waits_for_others(run)
    if not turns:
        return []
    start, end, culprit = (
        np.concatenate([getattr(each, name) for each in turns]) for name in ("start", "end", "culprit")
    )
    known = culprit >= 0
    start, end, culprit = start[known], end[known], culprit[known].astype(np.int64)
    devices = len(run.by_device)
    findings = []
    for group in run.lines(np.unique(culprit)):
        mine = np.isin(culprit, group.rows)
        idle = int((end - start)[mine].sum())
        if idle < _WORTH * run.wall * devices:
            continue
        findings.append(
            run.finding(
                "serial-devices",
                group,
                title="Devices take turns: one idles while another works",
                saw=f"{counted(int(mine.sum()), 'time')} one of {devices} devices waited while another worked: "
                f"{duration(idle)} in all, {share(idle, run.wall * devices)} of their time",
                fix="split the batch into micro-batches, so that the devices work on different ones at the same time "
                "(torch.distributed.pipelining); or give each device the whole model and a part of the batch",
                safe_if="nothing needs the whole batch at once (batch normalisation does)",
                total_exposed_ns=round(idle / devices),
                total_wait_ns=0,
                count=int(mine.sum()),
                confidence="medium",
                spans=costliest(start[mine], end[mine], (end - start)[mine]),
            )
        )
    return findings
