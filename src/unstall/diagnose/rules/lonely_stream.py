"""Work put on another stream that never overlaps with anything: the second stream gains nothing."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.streams import LONELY, overlap
from unstall.figures import duration, share
from unstall.result import Finding

_WORTH = 0.005  # of the window
_ADDS_GRADIENTS = "torch::autograd::AccumulateGrad"  # on a stream that autograd chooses, where no program can move it


def lonely_stream(run: Run) -> list[Finding]:
    """One finding a line and stream. `exposed` is the time it ran alone; collectives have a rule of their own."""
    timeline, device = run.timeline, run.timeline.device
    findings = []
    chosen = run.ops_inside & ~run.comm
    for number in np.unique(device.device):
        here = chosen & (device.device == number)
        counts = np.bincount(device.stream[here], minlength=1)
        lengths = np.bincount(device.stream[here], (device.end - device.start)[here], minlength=1)
        worth = np.flatnonzero(lengths >= _WORTH * run.wall)
        for stream in worth[worth != counts.argmax()].tolist():
            own = here & (device.stream == stream)
            work, both = overlap(run, int(number), stream)
            if work < _WORTH * run.wall or both > LONELY * work:
                continue
            rows = np.flatnonzero(own & (device.launch >= 0))
            for group in run.lines(np.unique(device.launch[rows]).astype(np.int64)):
                if (group.op or "").endswith(_ADDS_GRADIENTS):
                    continue
                mine = np.intersect1d(run.ops_of(group.rows), rows)
                length = run.alone(mine, {})
                findings.append(
                    run.finding(
                        "lonely-stream",
                        group,
                        title="Work on another stream that overlaps with nothing",
                        saw=f"{len(mine):,} ops on stream {int(timeline.streams.stream[stream])}, "
                        f"{duration(length)}, of which {share(both, work)} overlapped",
                        fix="launch it before the work it should overlap with, and wait for it later; with nothing to "
                        "overlap, stay on one stream",
                        safe_if="the two do not depend on each other",
                        count=len(mine),
                        total_exposed_ns=round(length * (1 - both / work)),
                        total_wait_ns=0,
                        confidence="medium",
                    )
                )
    return findings
