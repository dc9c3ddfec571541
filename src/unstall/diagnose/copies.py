"""Finds the copies from host to device (uploads), and the host's waits for these copies."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64, Bool, CopyDirection, DeviceKind, HostKind, HostMemory
from unstall.timeline.grouping import groups
from unstall.ways_to_wait import MAKES_TENSOR


def uploads(run: Run, memory: HostMemory) -> I64:
    """Returns the copies to the device from one kind of host memory, as indices of rows of
    `timeline.device`.

    Only copies that were launched in the steps count. Copies in CUDA graphs, and copies of tensors
    that are made from Python values, are left out.

    Args:
        run: The recorded run.
        memory: The kind of host memory, such as pageable.
    """
    device = run.timeline.device
    chosen = (
        (device.kind == DeviceKind.COPY)
        & (device.direction == CopyDirection.HOST_TO_DEVICE)
        & (device.host_memory == memory)
        & (device.launch >= 0)
    )
    rows: I64 = np.flatnonzero(chosen)
    in_graph = run.timeline.host.kind[device.launch[rows]] == HostKind.GRAPH_LAUNCH
    rows = rows[run.inside[device.launch[rows]] & ~in_graph]
    return rows[~_makes_tensor(run, device.launch[rows].astype(np.int64))]


def with_waits(run: Run, copies: I64) -> I64:
    """Returns the calls that made some copies, and the waits for these copies.

    `copies` are indices of rows of `timeline.device`. The result has indices of rows of
    `timeline.host`.
    """
    calls = np.unique(run.timeline.device.launch[copies]).astype(np.int64)
    waits = run.activity.waits
    return np.union1d(calls, waits.row[np.isin(waits.upload, calls)]).astype(np.int64)


def copying_ns(run: Run, copies: I64) -> int:
    """Returns how long some copies took, from the beginning of each call to the end of the call or of the copy,
    whichever is later, in ns.

    So the host's time for staging the data counts. The time in which a call waited for earlier work of its stream does
    not, and neither does the time between a call and its copy. `copies` are indices of rows of `timeline.device`.
    """
    host, device = run.timeline.host, run.timeline.device
    call = device.launch[copies]
    called, returned = host.start[call], host.end[call]
    start, end = device.start[copies], device.end[copies]
    earlier = np.zeros(len(device), dtype=np.int64)
    for _, mine in groups(device.stream):
        mine = mine[np.argsort(device.start[mine], kind="stable")]
        earlier[mine[1:]] = np.maximum.accumulate(device.end[mine])[:-1]
    begun = np.where(returned > start, np.clip(earlier[copies], called, np.maximum(start, called)), called)
    both = np.maximum(np.minimum(returned, end) - np.maximum(begun, start), 0)
    return int((returned - begun + end - start - both).sum())


def other_waits(run: Run) -> I64:
    """Returns the host's waits for the device, as indices of rows of `timeline.host`. Leaves out
    waits for copies to the device, unless these copy tensors that are made from Python values.
    """
    return run.activity.waits.row[~_for_upload(run)].astype(np.int64)


def upload_waits(run: Run) -> I64:
    """Returns the host's waits for copies to the device, as indices of rows of `timeline.host`.

    Waits for copies of tensors that are made from Python values are left out.
    """
    return run.activity.waits.row[_for_upload(run)].astype(np.int64)


def _for_upload(run: Run) -> Bool:
    waits = run.activity.waits
    chosen: Bool = waits.for_copy & ~_makes_tensor(run, waits.upload.astype(np.int64))
    return chosen


def _makes_tensor(run: Run, rows: I64) -> Bool:
    """Returns a mask over `rows`: True for events within torch.tensor(…) or a similar call. `rows`
    are indices of rows of `timeline.host`.
    """
    timeline = run.timeline
    functions = timeline.lines.function
    maker = np.array([bool(re.match(MAKES_TENSOR, timeline.text(int(i)))) for i in functions], dtype=np.bool_)
    stack = timeline.host.stack[rows]
    if not len(functions):
        return np.zeros(len(rows), dtype=np.bool_)
    return (stack >= 0) & maker[timeline.stacks.line[np.maximum(stack, 0)]]
