"""Finds work on a second stream that saves no time, because it hardly overlaps with other work."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.streams import LONELY, fills_device, overlap
from unstall.figures import duration, share
from unstall.result import Finding
from unstall.timeline.columns import Bool

_WORTH = 0.005  # of the window
_ADDS_GRADIENTS = "torch::autograd::AccumulateGrad"  # autograd chooses its stream; no program can move it


def lonely_stream(run: Run) -> list[Finding]:
    """Returns a finding for each line that launches work on a second stream, if this stream hardly
    overlaps with other streams.

    The finding's exposed time is the time in which the work on this stream ran alone. Kernels that
    fill the device are left out, because the rule `full_device` reports them. Collectives are left
    out, because the rule `exposed_comm` reports them.
    """
    device = run.timeline.device
    findings = []
    for number in np.unique(device.device):
        here = run.ops_inside & ~run.comm & (device.device == number)
        lonely = _lonely(run, int(number), here)
        rows = np.flatnonzero(here & np.isin(device.stream, list(lonely)) & (device.launch >= 0))
        for group in run.lines(np.unique(device.launch[rows]).astype(np.int64)):
            if (group.op or "").endswith(_ADDS_GRADIENTS):
                continue
            mine = np.intersect1d(run.ops_of(group.rows), rows)
            streams = np.unique(device.stream[mine]).tolist()
            work, both = (sum(lonely[stream][part] for stream in streams) for part in (0, 1))
            length = run.alone(mine, {})
            others = np.flatnonzero(here & ~np.isin(device.stream, streams))
            if fills_device(run, mine) or fills_device(run, others):
                continue
            exposed = round(length * (1 - both / work))
            findings.append(
                run.finding(
                    "lonely-stream",
                    group,
                    title="Work on another stream that overlaps with nothing",
                    saw=f"{len(mine):,} ops on {_names(run, streams)} take {duration(length)}, of which "
                    f"{share(both, work)} overlaps with other work",
                    fix="launch it before the work it should overlap with, and wait for it later; with nothing to "
                    "overlap, use one stream",
                    safe_if="the two do not depend on each other",
                    count=len(mine),
                    total_exposed_ns=exposed,
                    total_wait_ns=0,
                    confidence="medium",
                    harmless=run.negligible(exposed),
                )
            )
    return findings


def _lonely(run: Run, number: int, here: Bool) -> dict[int, tuple[int, int]]:
    """Returns the streams of a device that hardly overlap with any other stream of the device.

    For each stream, the result has (ns at work, ns of overlap). The stream with the most ops is left out.
    """
    device = run.timeline.device
    counts = np.bincount(device.stream[here], minlength=1)
    lengths = np.bincount(device.stream[here], (device.end - device.start)[here], minlength=1)
    worth = np.flatnonzero(lengths >= _WORTH * run.wall)
    overlaps = {stream: overlap(run, number, stream) for stream in worth[worth != counts.argmax()].tolist()}
    return {
        stream: (work, both)
        for stream, (work, both) in overlaps.items()
        if work >= _WORTH * run.wall and both <= LONELY * work
    }


def _names(run: Run, streams: list[int]) -> str:
    """Returns the streams as text, such as "stream 20", "streams 20 and 24" or "5 streams"."""
    names = [str(int(run.timeline.streams.stream[stream])) for stream in streams]
    if len(names) > 2:
        return f"{len(names)} streams"
    return f"stream{'s' * (len(names) > 1)} {' and '.join(names)}"
