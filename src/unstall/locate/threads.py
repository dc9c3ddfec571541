"""Finds out what the threads of a run do: which threads launch work, and which threads only get batches."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64, DeviceKind, Timeline
from unstall.timeline.grouping import unique


def dispatch_threads(timeline: Timeline, launches: I32) -> I64:
    """Returns the threads that launch work, as rows of `timeline.threads`. A thread counts if it
    has at least one fiftieth as many launches as the thread with the most launches. If there are no
    launches, returns all threads.

    `launches` has the launch of each op, as a row of `timeline.host`. -1 means that the launch is
    not known.
    """
    counts = np.bincount(timeline.host.thread[launches[launches >= 0]], minlength=1)
    if not counts.any():
        return np.arange(len(timeline.threads))
    return np.flatnonzero(counts * 50 >= max(int(counts.max()), 1))


def launching_threads(timeline: Timeline, launches: I32) -> I64:
    """Returns the threads that launch anything at all, as rows of `timeline.threads`. If there are
    no launches, returns all threads.

    What the driver sets up, it sets up within the launch that is the first to need it, even if that is the only
    launch of its thread. `launches` has the launch of each op, as a row of `timeline.host`. -1 means that the launch
    is not known.
    """
    known = launches[launches >= 0]
    return unique(timeline.host.thread[known]).astype(np.int64) if len(known) else np.arange(len(timeline.threads))


def feeding_threads(timeline: Timeline, loading: I64) -> I64:
    """Returns the threads that prefetch batches, as rows of `timeline.threads`. Such a thread gets
    batches from a DataLoader and does not launch kernels. Returns no threads if no thread launches
    kernels.

    `loading` has the events in which a DataLoader gets a batch, as rows of `timeline.host`.
    """
    host, device = timeline.host, timeline.device
    kernels = unique(host.thread[device.launch[(device.launch >= 0) & (device.kind == DeviceKind.KERNEL)]])
    asking = unique(host.thread[loading])
    return np.setdiff1d(asking, kernels).astype(np.int64) if len(kernels) else np.zeros(0, np.int64)
