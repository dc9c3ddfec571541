"""Finds streams whose kernels fill the whole device, so that another stream gains nothing."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.diagnose.streams import FILLS, LONELY, fills_device, overlap
from unstall.figures import counted, duration, share
from unstall.replay.program import WHOLE
from unstall.result import Finding
from unstall.timeline.columns import I64, Bool

_WORTH = 0.005  # of the time that the device is busy
_LONGEST_NAME = 72  # characters of a kernel's name that are printed


def full_device(run: Run) -> list[Finding]:
    """Returns at most one finding for each device: its work is on several streams, but the streams
    cannot run at the same time, because kernels fill the device.

    There are two cases. The kernels of one stream and those of all other streams each fill the
    device. Or only one of the two fills it, and the two never overlap. The finding is always marked
    as harmless: it costs nothing. There are findings only if the recording says which share of the
    device each kernel uses, as a recording of the virtual GPU does.
    """
    device = run.timeline.device
    findings = []
    for number in np.unique(device.device[device.share >= FILLS]).tolist():
        here = run.ops_inside & ~run.comm & (device.device == number) & (device.launch >= 0)
        crowded = np.flatnonzero(here & np.isin(device.stream, _crowded(run, number, here)))
        if len(crowded):
            findings.append(_finding(run, crowded))
    return findings


def _crowded(run: Run, number: int, here: Bool) -> list[int]:
    """Returns the streams of a device, without the one with the most ops, whose work leaves or has no room."""
    device = run.timeline.device
    counts = np.bincount(device.stream[here], minlength=1)
    lengths = np.bincount(device.stream[here], (device.end - device.start)[here], minlength=1)
    found = []
    for stream in np.flatnonzero(lengths >= max(_WORTH * int(lengths.sum()), 1)).tolist():
        mine, others = (np.flatnonzero(here & part) for part in (device.stream == stream, device.stream != stream))
        full = fills_device(run, mine), fills_device(run, others)
        if stream == counts.argmax() or not any(full):
            continue
        work, both = overlap(run, number, stream)
        if all(full) or both <= LONELY * work:
            found.append(stream)
    return found


def _finding(run: Run, ops: I64) -> Finding:
    device = run.timeline.device
    length = device.end - device.start
    group = max(run.lines(np.unique(device.launch[ops]).astype(np.int64)), key=lambda each: _taken(run, each))
    full = np.flatnonzero((device.share >= FILLS) & run.ops_inside & (device.device == device.device[ops[0]]))
    longest = device.name[full[length[full].argmax()]]
    # Beside others a kernel takes longer than it does alone.
    usual = full[device.name[full] == longest]
    alone = usual[length[usual].argmin()]
    name = run.timeline.text(int(longest))
    return run.finding(
        "full-device",
        group,
        title="A kernel fills the device, so a second stream cannot help",
        saw=f"{counted(len(ops), 'op')} on other streams; each {name[:_LONGEST_NAME]} takes "
        f"{duration(int(length[alone]))} alone and uses {share(int(device.share[alone]), WHOLE)} of the device, so "
        "there is no room for another kernel: two side by side take as long as one after the other",
        fix="the second stream loses nothing and gains nothing: use one stream. Streams help copies, and kernels that "
        "leave room",
        safe_if="—",
        count=len(ops),
        total_exposed_ns=0,
        total_wait_ns=0,
        harmless=True,
        explains=True,
    )


def _taken(run: Run, group: Group) -> int:
    """Returns how long the device ops that a group launched run, in ns."""
    ops = run.ops_of(group.rows)
    return int((run.timeline.device.end - run.timeline.device.start)[ops].sum())
