"""Measures device time by CUPTI, which gives the device's own records of its work. Each record is
assigned to the call that launched the work.

The host waits for each call before the next one begins, so kernels of different calls never
overlap. A record belongs to the call during which the work was launched. The launch may be on any
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from unstall.cupti.few_calls import CallRecords, FewCalls
from unstall.frameworks import is_framework
from unstall.measuring.adapters import Adapter
from unstall.measuring.device_time.device_ops import DeviceOps, DriverMemory, HostWait, StreamLink, StreamStep
from unstall.measuring.measurement import Method
from unstall.timeline.columns import I64

_WAITS = {"cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize", "cuEventSynchronize"}
_TAKES = {"cuMemAlloc", "cuMemFree", "cuMemAllocHost", "cuMemFreeHost", "cuMemHostAlloc", "cuMemCreate", "cuMemRelease"}
_OURS = "unstall/measuring/"  # as recorded stacks write it
_UNDER_WAY = "unstall.bench is measuring: a recording can begin when it is done"


class ByCupti:
    """Records, by CUPTI, the work that the device does for calls of a function. If `places` is set,
    also finds the source lines of driver calls.
    """

    method: Method = "cupti"

    def __init__(self, *, places: bool = False) -> None:
        self._places = places

    def observe(self, run: Callable[[], object], count: int, adapter: Adapter, before: Callable[[], None]) -> DeviceOps:
        """Calls `before` and then `run`, `count` times. Returns the device ops of each call of
        `run`. Ops of `before` are not included.

        Args:
            run: The function whose ops are recorded.
            count: The number of calls.
            adapter: The adapter for the framework of the function.
            before: A function that is called before each call of `run`.

        Raises:
            UnstallError: CUPTI cannot record on this machine, or it lost records.
        """
        times = np.zeros((count, 3), np.int64)
        adapter.synchronize()
        with FewCalls(_UNDER_WAY, stacks=self._places) as recording:
            try:
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
            finally:
                adapter.synchronize()
        return ops_by_call(recording.records, times, marked)


def ops_by_call(records: CallRecords, times: I64, marked: int) -> DeviceOps:
    """Returns the device ops that CUPTI recorded, each with the call of the measured function that
    launched it.

    Args:
        records: The recorded ops and driver calls.
        times: For each call of the function, three times in ns: when the call began, when the call
            returned, and when the call's work was done. int64, shape (calls, 3).
        marked: A time in ns. The first op that is launched after this time shows which stream is
            the current one.
    """
    ops, calls = records.ops, records.calls
    if not len(ops.start):
        return _nothing(len(times))
    place = _PlaceOfStack(records)
    known = ops.launch >= 0
    launch = np.maximum(ops.launch, 0)
    # Use the time of the launch or, if that was not recorded, the start of the op.
    moment = np.where(known, calls.start[launch], ops.start) if len(calls.start) else ops.start
    call = _call_of(moment, times, np.where(known, 1, 2))
    before = np.flatnonzero((moment >= marked) & (moment < times[0, 0]))
    main = int(ops.stream[before[0]]) if len(before) else -1
    links, waits, taken = _calls_inside(records, times, place)
    for row in np.flatnonzero(call >= 0).tolist():
        stream = main if ops.graph[row] else int(ops.stream[row])
        links.append((int(moment[row]), StreamLink(int(call[row]), StreamStep.OP, stream)))
    stack = np.where(known, calls.stack[launch], -1) if len(calls.start) else np.full(len(ops.start), -1)
    mine = call >= 0
    return DeviceOps(
        calls=len(times),
        call=call[mine],
        start=ops.start[mine],
        end=ops.end[mine],
        stream=ops.stream[mine],
        kind=ops.kind[mine],
        direction=ops.direction[mine],
        bytes=ops.bytes[mine],
        graph=ops.graph[mine],
        place=tuple(place[each] for each in stack[mine].tolist()),
        main_stream=main,
        links=tuple(link for _, link in sorted(links, key=lambda each: each[0])),
        waits=waits,
        taken=taken,
    )


def _calls_inside(
    records: CallRecords, times: I64, place: _PlaceOfStack
) -> tuple[list[tuple[int, StreamLink]], tuple[HostWait, ...], tuple[DriverMemory, ...]]:
    """Finds what the driver calls did that were made during the function's calls.

    Returns:
        `(links, waits, taken)`. `links` has a pair (time, effect on a stream) for each driver call
        that records an event, and for each that waits. `waits` has the host's waits for the device.
        `taken` has the allocations and frees of memory.
    """
    calls = records.calls
    links: list[tuple[int, StreamLink]] = []
    waits: list[HostWait] = []
    taken: list[DriverMemory] = []
    inside = _call_of(calls.start, times, np.ones(len(calls.start), np.int64))
    for row in np.flatnonzero(inside >= 0).tolist():
        number, name = int(inside[row]), calls.name[row]
        start, end = int(calls.start[row]), int(calls.end[row])
        stream, event, stack = int(calls.stream[row]), int(calls.event[row]), int(calls.stack[row])
        if name.startswith("cuEventRecord"):
            links.append((start, StreamLink(number, StreamStep.RECORD, stream, event)))
        elif name == "cuStreamWaitEvent":
            links.append((start, StreamLink(number, StreamStep.WAIT, stream, event)))
        elif name in _WAITS:
            which = -2 if name == "cuEventSynchronize" else stream if name == "cuStreamSynchronize" else -1
            links.append((end, StreamLink(number, StreamStep.HOST_WAIT, which, event)))
            waits.append(HostWait(number, end - start, place[stack]))
        elif name.removesuffix("_v2") in _TAKES:
            taken.append(DriverMemory(number, name.removesuffix("_v2"), place[stack]))
    return links, tuple(waits), tuple(taken)


def _call_of(moment: I64, times: I64, until: I64) -> I64:
    """Returns, for each moment, the index of the call of the measured function that contains the
    moment, or -1.

    A call begins at the time in column 0 of `times`. `until` says for each moment where calls end
    for it: it has the number of a column of `times`, 1 for the return of a call, 2 for the end of
    its work.
    """
    call = np.searchsorted(times[:, 0], moment, side="right") - 1
    within = (call >= 0) & (moment <= times[np.maximum(call, 0), until])
    return np.where(within, call, -1)


def _nothing(calls: int) -> DeviceOps:
    none, small = np.zeros(0, np.int64), np.zeros(0, np.int8)
    return DeviceOps(calls, none, none, none, none, small, small, none, np.zeros(0, np.bool_), (), -1)


class _PlaceOfStack(dict[int, str | None]):
    """A dict from the number of a recorded stack to the `file:line` of the user's innermost frame.

    If the stack has no frame of the user, the innermost frame outside of unstall/measuring is used.
    If there is no such frame either, the value is None.
    """

    def __init__(self, records: CallRecords) -> None:
        self._stacks = records.stacks

    def __missing__(self, stack: int) -> str | None:
        others = [frame for frame in self._stacks.get(stack, ()) if not frame[0].startswith(_OURS)]
        own = next((frame for frame in others if not is_framework(frame[0])), next(iter(others), None))
        self[stack] = place = f"{own[0]}:{own[1]}" if own else None
        return place
