"""Finds lines that read a clock while the device is still at work, so that the measured time leaves
out some of the work.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.result import Finding, Where
from unstall.timeline.columns import I64
from unstall.timeline.grouping import groups

_APART = 0.1  # of the longer time: the measured one, or the one that the work took
_LEAST_NS = 20_000  # a device that is behind by less has just been given its last op


def early_clock_read(run: Run) -> list[Finding]:
    """Returns a finding for each line that reads a clock too early: the device has not done all
    work that was launched since the previous reading.

    If the time between two readings is at least as long as the work took, there is no finding: the
    host waited for a full launch queue, so the measured time is right. There are findings only if
    the recording has the reads of the clock, as a recording of the virtual GPU has.
    """
    reads = run.timeline.clock_reads
    times, lines = reads.time[reads.of_host], reads.line[reads.of_host]
    low, high = run.window
    device = run.timeline.device
    known = np.flatnonzero(device.launch >= 0)
    if len(times) < 2 or not len(known):
        return []
    launched = run.timeline.host.start[device.launch[known]]
    order = np.argsort(launched, kind="stable")
    launched, calls = launched[order], device.launch[known[order]].astype(np.int64)
    done = np.append(times[0], np.maximum.accumulate(device.end[known[order]]))
    first, until = np.searchsorted(launched, times[:-1]), np.searchsorted(launched, times[1:])
    reading = np.diff(times)
    took = done[until] - np.maximum(times[:-1], done[first])
    behind = done[until] - times[1:]
    early = (
        (until > first)
        & (times[1:] >= low)
        & (times[1:] <= high)
        & (behind > _LEAST_NS)
        & (took - reading > _APART * np.maximum(took, reading))
    )
    found = []
    for line, mine in groups(lines[1:][early].astype(np.int64)):
        pairs = np.flatnonzero(early)[mine]
        rows = np.unique(np.concatenate([calls[first[pair] : until[pair]] for pair in pairs.tolist()]))
        found.append(_finding(run, line, rows, reading[pairs], took[pairs], behind[pairs]))
    return found


def _finding(run: Run, line: int, rows: I64, reading: I64, took: I64, behind: I64) -> Finding:
    lines, text = run.timeline.lines, run.timeline.text
    where = Where(
        file=text(int(lines.file[line])),
        line=int(lines.line[line]),
        line_is="exact",
        function=text(int(lines.function[line])),
    )
    usual, true, late = (duration(round(float(np.median(times)))) for times in (reading, took, behind))
    many = " (median)" if len(reading) > 1 else ""
    finding = run.finding(
        "early-clock-read",
        Group(-1, None, rows),
        title="A clock is read while the device is still at work",
        saw=f"{counted(len(reading), 'reading')} of {usual}{many}: launching returns at once, and the device was done "
        f"{late} later. What was launched in between took {true}{many}",
        fix="torch.cuda.synchronize() before each reading, or CUDA events; unstall.Timer and unstall.bench wait for "
        "the device",
        safe_if="the time of the device is meant, not that of launching",
        count=len(reading),
        total_wait_ns=0,
        total_exposed_ns=0,
        harmless=True,
        explains=True,
    )
    return msgspec.structs.replace(finding, where=where)
