"""Copies between host and device use pinned memory, and uploads do not block the host."""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Code
from unstall.timeline.columns import Bool, CopyDirection, DeviceKind, HostMemory, Timeline
from unstall.timeline.copies import is_staged
from unstall.what_if.copy_waits import launching, waits_in_call, waits_in_operation, with_wait_in_call
from unstall.what_if.place import EditPlace
from unstall.what_if.rewrites import neutral
from unstall.what_if.staging import unexplained_ns, usual_launch
from unstall.what_if.subject import Subject

# Bytes per ns of a large copy from or to pinned memory, by the link between GPU and host. An H200 on PCIe 5 reaches
# 55.4 (benchmarks/results/device_delays_h200.json), older links a half and a quarter of that. If a GPU has a faster
# link to its host (GH200), no copy becomes slower than it was.
_RATES = ((re.compile(r"\b(H100|H200|H20|H800|B100|B200|B300|RTX PRO|RTX 50|MI300|MI325|MI350)"), 55.0),)
_RATE_PCIE_4, _RATE_PCIE_3 = 25.0, 12.0
_PCIE_3 = re.compile(r"\b(V100|T4|P100|P4|P40|K80|RTX 20|GTX|TITAN|Quadro)")
_LARGE_BYTES = 256 << 10
_SETUP_NS = 1_000  # the part of a copy's time that does not depend on its size
_CALL_NS = 5_000  # at most; a call that copies from pinned memory takes no longer than one that launches a kernel
_LATENCY_NS = 1_800


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which copies at `place` (None for all) use pinned memory. The host still
    waits for downloads, because it needs their values.
    """
    return pinned(subject, subject.at(place)[subject.program.launcher])


def pinned(subject: Subject, among: Bool) -> Subject:
    """Returns the run in which copies between host and device use pinned memory.

    `among` is a mask of the program's ops: only copies among them are changed.
    """
    timeline, program = subject.timeline, subject.program
    device, do, ops = timeline.device, program.instructions, program.ops
    row = ops.device
    crossing = (device.direction == CopyDirection.HOST_TO_DEVICE) | (device.direction == CopyDirection.DEVICE_TO_HOST)
    copies = (device.kind == DeviceKind.COPY) & crossing & (device.host_memory == HostMemory.PAGEABLE)
    chosen = copies[row] & among
    uploads_at, downloads_at = (
        pinned_rate(timeline, way) for way in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
    )
    rate = np.where(device.direction == CopyDirection.HOST_TO_DEVICE, uploads_at, downloads_at)[row]
    faster = (np.maximum(device.bytes[row], 0) / rate).astype(np.int64) + _SETUP_NS
    duration = np.where(chosen & (device.bytes[row] > 0), np.minimum(ops.duration, faster), ops.duration)

    uploads = launching(program, (device.direction == CopyDirection.HOST_TO_DEVICE)[row] & among)
    # The call waits until the copy is done, or returns when the host has copied the data into the driver's memory.
    blocking = with_wait_in_call(program, launching(program, chosen))
    blocking |= launching(program, chosen & is_staged(timeline, row))
    usual = min(usual_launch(subject)[1] or _CALL_NS, _CALL_NS)
    # Other work in the call stays, such as the first use of the device.
    rest = unexplained_ns(subject, among, usual)
    waits = waits_in_call(program, blocking & uploads)
    call = np.where(blocking, np.minimum(do.call, usual + rest), do.call + np.where(waits, rest, 0))
    # The copy arrives after the call rather than within it, and no later than before.
    latest = ops.latency + (do.call - call)[program.launcher]
    latency = np.where(blocking[program.launcher], np.minimum(latest, _LATENCY_NS), ops.latency)
    code = do.code.copy()
    code[waits] = Code.CALL
    made = replace(
        program,
        instructions=replace(do, code=code, call=call),
        ops=replace(ops, duration=duration, latency=latency),
    )
    left_out = waits_in_operation(subject, uploads) & (code == Code.SYNC_STREAM)  # by `non_blocking=True`
    return subject.with_program(neutral(made, left_out))


def pinned_rate(timeline: Timeline, direction: CopyDirection) -> float:
    """Returns the rate of large copies from or to pinned memory in the given direction, in bytes
    per ns.

    If the run has no such copies, returns the usual rate of the link between a host and the run's
    first device.
    """
    device = timeline.device
    seen = (device.host_memory == HostMemory.PINNED) & (device.bytes >= _LARGE_BYTES) & (device.direction == direction)
    if seen.any():
        return float(np.median(device.bytes[seen] / np.maximum((device.end - device.start)[seen] - _SETUP_NS, 1)))
    name = next(iter(timeline.meta.devices), "")
    for pattern, rate in _RATES:
        if pattern.search(name):
            return rate
    return _RATE_PCIE_3 if _PCIE_3.search(name) else _RATE_PCIE_4
