"""Finds streams that wait for an event of another stream while the device has nothing else to do."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.result import Finding

_WORTH = 0.005  # of the window


def stream_wait(run: Run) -> list[Finding]:
    """Returns a finding for each line whose work had to wait for an event of another stream while
    the device was idle.
    """
    lost = run.lost_to("event")
    findings = []
    for group in run.lines(np.flatnonzero(lost)):
        exposed = int(lost[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        held = "launch was" if len(group.rows) == 1 else "launches were"
        findings.append(
            run.finding(
                "stream-wait",
                group,
                title="Streams wait for each other while the device idles",
                saw=f"{len(group.rows):,} {held} held by an event that another stream reached late",
                fix="record the event right after the work that is needed, not later; wait right before the use",
                safe_if="the event still covers all that the waiting stream reads",
                total_exposed_ns=exposed,
                total_wait_ns=0,
                count=len(group.rows),
                confidence="medium",
                spans=run.idle_spans(group.rows, "event"),
            )
        )
    return findings
