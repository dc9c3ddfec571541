"""Copies between host and device: which are uploads, and which waits belong to them."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.diagnose.ways_to_wait import MAKES_TENSOR
from unstall.timeline import I64, Bool, CopyDirection, DeviceKind, HostMemory


def uploads(run: Run, memory: HostMemory) -> I64:
    """Device rows of host-to-device copies from this kind of memory, launched within the window."""
    device = run.timeline.device
    chosen = (
        (device.kind == DeviceKind.COPY)
        & (device.direction == CopyDirection.HOST_TO_DEVICE)
        & (device.host_memory == memory)
        & (device.launch >= 0)
    )
    rows = np.flatnonzero(chosen)
    rows = rows[run.inside[device.launch[rows]]]
    return rows[~_makes_tensor(run, device.launch[rows].astype(np.int64))]


def with_waits(run: Run, copies: I64) -> I64:
    """Host rows of these copies' calls, and of the waits that the same operators made for them."""
    host = run.timeline.host
    calls = np.unique(run.timeline.device.launch[copies]).astype(np.int64)
    in_op = np.zeros(len(host) + 1, dtype=np.bool_)
    in_op[host.op[calls]] = True
    in_op[-1] = False
    waits = run.activity.waits.row
    return np.union1d(calls, waits[in_op[host.op[waits]] & run.activity.waits.for_copy])


def waits_for_upload(run: Run, waits: I64) -> Bool:
    """Which of these host rows wait for a copy to the device that is not a tensor being made from Python values."""
    for_copy = np.zeros(len(run.timeline.host), dtype=np.bool_)
    for_copy[run.activity.waits.row] = run.activity.waits.for_copy
    return for_copy[waits] & ~_makes_tensor(run, waits)


def _makes_tensor(run: Run, rows: I64) -> Bool:
    """Whether a host event is below torch.tensor(…) or the like."""
    timeline = run.timeline
    functions = timeline.lines.function
    maker = np.array([bool(re.match(MAKES_TENSOR, timeline.text(int(i)))) for i in functions], dtype=np.bool_)
    stack = timeline.host.stack[rows]
    if not len(functions):
        return np.zeros(len(rows), dtype=np.bool_)
    return (stack >= 0) & maker[timeline.stacks.line[np.maximum(stack, 0)]]
