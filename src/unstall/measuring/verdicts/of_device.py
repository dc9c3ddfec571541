"""Verdicts on the device's work and on memory: waits, copies, streams, allocations, caches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unstall.figures import counted, size
from unstall.measuring.measurement import Verdict
from unstall.measuring.verdicts.evidence import Evidence, ns_text
from unstall.measuring.wording import names_of
from unstall.timeline.columns import CopyDirection

_EXTRA_BYTES = 1 << 20
_GROWN_BYTES = 16 << 20
_FAULTS = 64  # pages of 4 KiB: 256 KiB


def sync_inside(seen: Evidence) -> Iterable[Verdict]:
    ops = seen.device_ops
    if ops is not None and ops.waits:
        each = len(ops.waits) / ops.calls
        ns = sum(wait.ns for wait in ops.waits) / ops.calls
        text = f"the call waits for the device {_times(each)}, {ns_text(ns)} in all: host time includes that"
        yield Verdict("sync inside", text, _most(wait.place for wait in ops.waits), serious=True)
    elif ops is None and (seen.sync_lines or (seen.device and seen.device.waits_inside)):
        text = "the call waits for the device: host time includes that"
        yield Verdict("sync inside", text, next(iter(seen.sync_lines), None), serious=True)


def copies_inside(seen: Evidence) -> Iterable[Verdict]:
    ops = seen.device_ops
    if ops is None:
        return
    for direction, where in (
        (CopyDirection.HOST_TO_DEVICE, "from the host"),
        (CopyDirection.DEVICE_TO_HOST, "to the host"),
    ):
        rows = np.flatnonzero(ops.direction == direction)
        if len(rows):
            moved = int(ops.bytes[rows].sum()) // ops.calls
            ns = float((ops.end - ops.start)[rows].sum()) / ops.calls
            times = _times(len(rows) / ops.calls)
            text = f"the call copies {where} {times}: {size(max(0, moved))}, {ns_text(ns)} of its device time"
            yield Verdict("copies inside", text, _most(ops.place[row] for row in rows.tolist()), serious=True)


def escapes(seen: Evidence) -> Iterable[Verdict]:
    ops = seen.device_ops
    streams = ops.escaped_streams() if ops is not None and seen.has_current_stream else set()
    if ops is None or not streams:
        return
    rows = np.flatnonzero(np.isin(ops.stream, list(streams)))
    ns = float((ops.end - ops.start)[rows].sum()) / ops.calls
    text = (
        f"{ns_text(ns)} of the call's work is on another stream, and its own stream does not wait for it: "
        "events around the call miss it, and its results may be read too early"
    )
    yield Verdict("escapes to another stream", text, _most(ops.place[row] for row in rows.tolist()), serious=True)


def allocates(seen: Evidence) -> Iterable[Verdict]:
    ops, extra = seen.device_ops, seen.inspection.extra_bytes
    if ops is not None and ops.taken:
        names = ", ".join(dict.fromkeys(each.what for each in ops.taken))
        times = _times(len(ops.taken) / ops.calls)
        text = f"the call asks the driver for memory or gives it back {times} ({names}), which waits for the device"
        yield Verdict("allocates", text, _most(each.place for each in ops.taken), serious=True)
    elif seen.inspection.from_driver:
        times = _times(seen.inspection.from_driver)
        text = f"the call makes the allocator ask the driver for memory {times}, which waits for the device"
        yield Verdict("allocates", text, serious=True)
    elif extra is not None and extra >= _EXTRA_BYTES:
        yield Verdict("allocates", f"the call takes {size(extra)} beyond its result, from the allocator's cache")
    elif not seen.asynchronous and seen.page_faults >= _FAULTS:
        faults = counted(round(seen.page_faults), "page fault")
        yield Verdict("allocates", f"each call takes fresh memory from the system: {faults}, and the memory is zeroed")


def keeps_memory(seen: Evidence) -> Iterable[Verdict]:
    kept = seen.inspection.kept_bytes
    if kept:
        text = f"each call keeps {size(kept)} after its result is gone: calls find less and less memory"
        yield Verdict("keeps memory", text, serious=True)
    elif seen.grown_bytes >= _GROWN_BYTES:
        text = f"the process grew by {size(seen.grown_bytes)} while calls were timed: they keep memory"
        yield Verdict("keeps memory", text, serious=True)


def stale_graph(seen: Evidence) -> Iterable[Verdict]:
    ops = seen.device_ops
    if ops is None or not ops.graph.any():
        return
    for number in range(ops.calls):
        rows = np.flatnonzero(ops.call == number)
        rows = rows[np.argsort(ops.start[rows], kind="stable")]
        if len(rows) and not ops.graph[rows[0]]:
            return
    rows = np.flatnonzero(ops.graph)
    text = (
        "the call replays a CUDA graph without writing to its inputs first: it computes the same as the last time, "
        "and the copy that a real call needs is not timed"
    )
    yield Verdict("stale graph input", text, _most(ops.place[row] for row in rows.tolist()), serious=True)


def cpu_tensor(seen: Evidence) -> Iterable[Verdict]:
    here = [array for array in seen.inspection.on("cpu") if _elements(array.value) > 1]
    if seen.asynchronous and here:
        names = names_of([array.name for array in here])
        held = size(sum(array.bytes for array in here))
        text = f"{names} is in the host's memory ({held}): it must be sent to the device"
        yield Verdict("CPU tensor", text, serious=True)
    elif not seen.asynchronous and seen.framework == "torch" and seen.gpu_is_there and here:
        names = names_of([array.name for array in here])
        text = f"{names} is on the CPU, and so is the work: the GPU is not used"
        yield Verdict("CPU tensor", text, serious=True)


def warm_cache(seen: Evidence) -> Iterable[Verdict]:
    touched = seen.inspection.input_bytes + seen.inspection.result_bytes
    if seen.virtual:  # its model knows of no caches
        return
    if seen.asynchronous and seen.cache == "hot" and 0 < touched <= seen.cache_bytes:
        text = (
            f"inputs and results ({size(touched)}) fit the L2 ({size(seen.cache_bytes)}) and stay there between calls"
        )
        yield Verdict("warm L2", text, serious=True)


def _elements(value: object) -> int:
    shape = getattr(value, "shape", ())
    return int(np.prod(tuple(shape), dtype=np.int64))


def _most(places: Iterable[str | None]) -> str | None:
    """Returns the most frequent of the `file:line` places, or None if no place is known."""
    named = [place for place in places if place is not None]
    return max(dict.fromkeys(named), key=named.count, default=None)


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:.3g} times"
