"""Device time by CUPTI: the device's own records of what ran, of which each belongs to the call that launched it.

Each call is waited for before the next, so that no kernel runs beside another call's. A record is a call's if the call
to the driver that it stems from was made while the function ran, on whichever thread.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from unstall.cupti.call_stacks import CallStacks, unavailable
from unstall.cupti.decode import Activity, read_activity
from unstall.cupti.driver_calls import DRIVER
from unstall.cupti.layouts import Kind
from unstall.cupti.recorder import Cupti
from unstall.errors import UnstallError
from unstall.frameworks import is_framework
from unstall.guest import active
from unstall.lines.places import Frame, Shortened, read_places
from unstall.measuring.adapters import Adapter
from unstall.measuring.device_time.device_ops import DeviceOps, DriverMemory, HostWait, StreamLink, StreamStep
from unstall.timeline.columns import I64, CopyDirection, DeviceKind

_KINDS = {
    Kind.KERNEL: DeviceKind.KERNEL,
    Kind.MEMCPY: DeviceKind.COPY,
    Kind.MEMCPY_PEER: DeviceKind.COPY,
    Kind.MEMSET: DeviceKind.MEMSET,
}
# cupti_activity.h: CUpti_ActivityMemcpyKind
_DIRECTIONS = {
    1: CopyDirection.HOST_TO_DEVICE,
    2: CopyDirection.DEVICE_TO_HOST,
    8: CopyDirection.DEVICE_TO_DEVICE,
    9: CopyDirection.HOST_TO_HOST,
    10: CopyDirection.PEER_TO_PEER,
}
_WAITS = {"cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize", "cuEventSynchronize"}
_TAKES = {"cuMemAlloc", "cuMemFree", "cuMemAllocHost", "cuMemFreeHost", "cuMemHostAlloc", "cuMemCreate", "cuMemRelease"}


class ByCupti:
    """Watches calls by CUPTI; with their places in the source, if asked for."""

    method = "cupti"
    under_way = "unstall.bench is measuring: a recording can begin when it is done"

    def __init__(self, *, places: bool = False) -> None:
        self._places = places and unavailable() is None

    def observe(self, run: Callable[[], Any], count: int, adapter: Adapter, before: Callable[[], None]) -> DeviceOps:
        """`before` is called before each, and what it does is no call's. Raises UnstallError where CUPTI does not
        record, or lost something."""
        times = np.zeros((count, 3), np.int64)
        adapter.synchronize()
        placed = False
        with tempfile.TemporaryDirectory(prefix="unstall-bench-") as name:
            folder = Path(name)
            with ExitStack() as undo:
                active.activate(self)  # so that no recording begins meanwhile, nor is one under way
                undo.callback(active.deactivate, self)
                recorder = Cupti(folder)
                if self._places:
                    with suppress(UnstallError):  # where no tool of sys.monitoring is free, places are not known
                        stacks = CallStacks(folder)
                        stacks.start()
                        undo.callback(stacks.stop)
                        placed = True
                recorder.start()
                undo.callback(recorder.stop)
                undo.callback(adapter.synchronize)
                marked = time.monotonic_ns()
                adapter.mark()
                adapter.synchronize()
                for number in range(count):
                    before()
                    adapter.synchronize()
                    times[number, 0] = time.monotonic_ns()
                    result = run()
                    times[number, 1] = time.monotonic_ns()
                    adapter.wait(result)
                    times[number, 2] = time.monotonic_ns()
                    del result
            frames = read_places(folder, str(Path.cwd())).stacks if placed else {}
            return _observed(read_activity(folder), times, marked, frames)

    # As the recording of this process: steps are none of its business, and it ends before its caller goes on.

    def step_boundary(self, kind: str, who: int = 0) -> None: ...

    def end(self, why: str) -> None: ...

    def forked(self) -> None: ...


def _observed(activity: Activity, times: I64, marked: int, frames: dict[int, tuple[Frame, ...]]) -> DeviceOps:
    columns: dict[str, list[np.ndarray]] = {}
    for kind, table in activity.tables.items():
        if kind not in _KINDS or not len(table):
            continue
        names = table.dtype.names or ()
        direction = np.zeros(len(table), np.int8)
        if "direction" in names:
            wide = np.zeros(256, np.int8)
            wide[list(_DIRECTIONS)] = list(_DIRECTIONS.values())
            direction = wide[table["direction"]]
        for name, column in (
            ("start", table["start"].astype(np.int64)),
            ("end", table["end"].astype(np.int64)),
            ("stream", table["stream"].astype(np.int64)),
            ("correlation", table["correlation"].astype(np.int64)),
            ("graph", table["graph"] != 0),
            ("kind", np.full(len(table), _KINDS[kind], np.int8)),
            ("direction", direction),
            ("bytes", table["bytes"].astype(np.int64) if "bytes" in names else np.full(len(table), -1)),
        ):
            columns.setdefault(name, []).append(column)
    if not columns:
        return _nothing(len(times))
    all_of = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.argsort(all_of["start"], kind="stable")
    all_of = {name: column[order] for name, column in all_of.items()}

    calls = activity.calls[np.argsort(activity.calls["start"], kind="stable")]
    place = _Places(frames)
    by_correlation = np.argsort(calls["correlation"], kind="stable")
    sorted_ids = calls["correlation"][by_correlation].astype(np.int64)
    at = np.searchsorted(sorted_ids, all_of["correlation"])
    known = (at < len(sorted_ids)) & (sorted_ids[np.minimum(at, len(sorted_ids) - 1)] == all_of["correlation"])
    launch = np.where(known, by_correlation[np.minimum(at, len(sorted_ids) - 1)], -1)
    # By when it was launched; of what no known call launched, by when it ran.
    moment = np.where(known, calls["start"].astype(np.int64)[np.maximum(launch, 0)], all_of["start"])
    call = _call_of(moment, times, np.where(known, 1, 2))
    before = np.flatnonzero((moment >= marked) & (moment < times[0, 0]))
    main = int(all_of["stream"][before[0]]) if len(before) else -1
    links, waits, taken = _calls_inside(calls, times, place)
    for row in np.flatnonzero(call >= 0).tolist():
        stream = main if all_of["graph"][row] else int(all_of["stream"][row])
        links.append((int(moment[row]), StreamLink(int(call[row]), StreamStep.OP, stream)))
    stack = np.where(launch >= 0, calls["stack"][np.maximum(launch, 0)], -1)
    mine = call >= 0
    return DeviceOps(
        calls=len(times),
        call=call[mine],
        start=all_of["start"][mine],
        end=all_of["end"][mine],
        stream=all_of["stream"][mine],
        kind=all_of["kind"][mine],
        direction=all_of["direction"][mine],
        bytes=all_of["bytes"][mine],
        graph=all_of["graph"][mine],
        place=tuple(place[each] for each in stack[mine].tolist()),
        main_stream=main,
        links=tuple(link for _, link in sorted(links, key=lambda each: each[0])),
        waits=waits,
        taken=taken,
    )


def _calls_inside(
    calls: np.ndarray, times: I64, place: _Places
) -> tuple[list[tuple[int, StreamLink]], tuple[HostWait, ...], tuple[DriverMemory, ...]]:
    """What of the calls to the driver within the function matters beside launches."""
    links: list[tuple[int, StreamLink]] = []
    waits: list[HostWait] = []
    taken: list[DriverMemory] = []
    inside = _call_of(calls["start"].astype(np.int64), times, np.ones(len(calls), np.int64))
    for row in np.flatnonzero(inside >= 0).tolist():
        each, number = calls[row], int(inside[row])
        name = DRIVER.get(int(each["what"]), "").removesuffix("_ptsz").removesuffix("_ptds")
        start, stream, event = int(each["start"]), int(each["stream"]), int(each["event"])
        if name.startswith("cuEventRecord"):
            links.append((start, StreamLink(number, StreamStep.RECORD, stream, event)))
        elif name == "cuStreamWaitEvent":
            links.append((start, StreamLink(number, StreamStep.WAIT, stream, event)))
        elif name in _WAITS:
            which = -2 if name == "cuEventSynchronize" else stream if name == "cuStreamSynchronize" else -1
            links.append((int(each["end"]), StreamLink(number, StreamStep.HOST_WAIT, which, event)))
            waits.append(HostWait(number, int(each["end"]) - start, place[int(each["stack"])]))
        elif name.removesuffix("_v2") in _TAKES:
            taken.append(DriverMemory(number, name.removesuffix("_v2"), place[int(each["stack"])]))
    return links, tuple(waits), tuple(taken)


def _call_of(moment: I64, times: I64, until: I64) -> I64:
    """By moment the call whose time it falls into: up to the function's return (`until` 1), or its results (2)."""
    call = np.searchsorted(times[:, 0], moment, side="right") - 1
    within = (call >= 0) & (moment <= times[np.maximum(call, 0), until])
    return np.where(within, call, -1)


def _nothing(calls: int) -> DeviceOps:
    none, small = np.zeros(0, np.int64), np.zeros(0, np.int8)
    return DeviceOps(calls, none, none, none, none, small, small, none, np.zeros(0, np.bool_), (), -1)


class _Places(dict[int, str | None]):
    """By stack: the innermost line that is the user's, else the innermost that is not ours."""

    def __init__(self, frames: dict[int, tuple[Frame, ...]]) -> None:
        self._frames = frames
        self._ours = str(Path(Shortened(str(Path.cwd()))[__file__]).parent)

    def __missing__(self, stack: int) -> str | None:
        others = [frame for frame in self._frames.get(stack, ()) if not frame[0].startswith(self._ours)]
        own = next((frame for frame in others if not is_framework(frame[0])), next(iter(others), None))
        self[stack] = place = f"{own[0]}:{own[1]}" if own else None
        return place
