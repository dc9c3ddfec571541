"""Which host call put each device op on its stream. One call may own many ops: a graph launch does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unstall.timeline import I32, I64, Device, Host, HostKind

_SKEW_NS = 1_000  # older recorders write whole microseconds
_WORK = (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH, HostKind.COPY, HostKind.MEMSET)


def join_launches(host: Host, device: Device) -> tuple[Device, list[str]]:
    """`device` with its `launch` column filled in, and notes on what does not add up."""
    notes: list[str] = []
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL) & (host.correlation >= 0))
    # Ids repeat where several processes share a file; a call that cannot launch never wins over one that can.
    calls = calls[np.lexsort((host.start[calls], np.isin(host.kind[calls], _WORK), host.correlation[calls]))]
    launch = _last_call_before(host, device, calls)
    orphans = int((launch < 0).sum())
    if orphans:
        notes.append(
            f"{orphans:,} of {len(device):,} device ops have no host call in the file: "
            "recording began after they were launched, or the recorder dropped the calls"
        )
    joined = np.flatnonzero(launch >= 0)
    early = int((device.start[joined] < host.start[launch[joined]] - _SKEW_NS).sum())
    if early:
        notes.append(
            f"{early:,} device ops start before the call that launched them: "
            "the clocks of host and device are not aligned"
        )
    return replace(device, launch=launch), notes


def _last_call_before(host: Host, device: Device, calls: I64) -> I32:
    """By correlation id: the only call, or of several the last one that began before the op did."""
    if not len(calls):
        return np.full(len(device), -1, dtype=np.int32)
    ids = host.correlation[calls]
    first = np.searchsorted(ids, device.correlation, side="left")
    beyond = np.searchsorted(ids, device.correlation, side="right")
    found = (beyond > first) & (device.correlation >= 0)
    launch = np.where(found, calls[np.minimum(beyond - 1, len(calls) - 1)], -1)
    shared = np.flatnonzero(found & (beyond - first > 1))
    for step in range(1, int((beyond - first)[shared].max(initial=1))):
        late = shared[device.start[shared] < host.start[launch[shared]]]
        earlier = beyond[late] - 1 - step
        launch[late] = np.where(earlier >= first[late], calls[np.maximum(earlier, 0)], launch[late])
    return launch.astype(np.int32)
