"""Finds device time on the virtual GPU. The time is exact, because it is the time of the ops that
the simulation ran for each call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unstall.measuring.adapters import Adapter
from unstall.measuring.device_time.device_ops import DeviceOps, DriverMemory, HostWait, StreamLink, StreamStep
from unstall.measuring.measurement import Method
from unstall.measuring.virtual_gpu import simulator
from unstall.timeline.columns import I64, CopyDirection
from unstall.virtual.simulation.recipes import RuntimeCall as Call
from unstall.virtual.simulation.simulate import Simulation

_WAITS = Call.SYNC_STREAM, Call.SYNC_DEVICE, Call.SYNC_EVENT, Call.REST
_TAKES = {Call.MALLOC: "cudaMalloc", Call.FREE: "cudaFree", Call.HOST_ALLOC: "cudaHostAlloc"}


class ByModel:
    """Finds the work that the virtual GPU does for calls of a function."""

    method: Method = "model"

    def observe(self, run: Callable[[], object], count: int, adapter: Adapter, before: Callable[[], None]) -> DeviceOps:
        """Calls `before` and then `run`, `count` times. Returns the device ops of each call of
        `run`. Ops of `before` are not included.

        Args:
            run: The function whose ops are wanted.
            count: The number of calls.
            adapter: The adapter for the framework of the function.
            before: A function that is called before each call of `run`.
        """
        machine = simulator()
        assert machine is not None
        history = machine.simulation.history
        borders: list[tuple[int, int]] = []

        def border() -> int:
            machine.drain()
            return history.done.length

        adapter.mark()
        begun = border()
        main = int(history.ran.whole().stream[-1])
        for _ in range(count):
            before()
            first = border()
            run()
            borders.append((first, border()))
            adapter.synchronize()
        border()
        return _observed(machine.simulation, np.array(borders, np.int64), begun, main, machine.place_of)


def _observed(simulation: Simulation, borders: I64, begun: int, main: int, place_of: Callable[[int], str]) -> DeviceOps:
    """Returns the device ops of the calls of a function.

    Leaves out ops that are launched between calls: there, the measurement itself flushes the cache
    and waits, and its ops cannot be distinguished from ops of other code.

    Args:
        simulation: The simulation that ran the calls.
        borders: For each call, the index of the call's first instruction, and the index of the
            first instruction after the call.
        begun: The index of the first instruction of the observation.
        main: The stream on which the calls are made.
        place_of: Returns the source line of a record of the simulation.
    """
    history = simulation.history
    ran, done, happened = history.ran.whole(), history.done.whole(), history.happened.whole()
    rows = np.flatnonzero(ran.instruction >= begun)
    instruction = ran.instruction[rows]
    call = _call_of(instruction, borders)
    rows, instruction, call = rows[call >= 0], instruction[call >= 0], call[call >= 0]
    place = _PlaceOfRecord(happened.stack, place_of)
    record = done.record[instruction]
    ops, op = simulation.actions.recipes.ops, ran.op[rows]

    links: list[tuple[int, StreamLink]] = []
    for at, number, stream in zip(instruction.tolist(), call.tolist(), done.stream[instruction].tolist(), strict=True):
        links.append((at, StreamLink(number, StreamStep.OP, stream)))
    waits: list[HostWait] = []
    taken: list[DriverMemory] = []
    inside = np.arange(begun, len(done.record))
    number_of = _call_of(inside, borders)
    for at, number in zip(inside[number_of >= 0].tolist(), number_of[number_of >= 0].tolist(), strict=True):
        what, event = Call(int(done.what[at])), int(happened.a[done.record[at]])
        stream = int(done.stream[at])
        if what is Call.EVENT_RECORD:
            links.append((at, StreamLink(number, StreamStep.RECORD, stream, event)))
        elif what is Call.EVENT_WAIT:
            links.append((at, StreamLink(number, StreamStep.WAIT, stream, event)))
        elif what in _WAITS:
            if what is Call.REST and done.stream[at] < 0:
                continue
            if what is Call.SYNC_EVENT:
                waited = StreamLink(number, StreamStep.HOST_WAIT, -2, event)
            else:
                waited = StreamLink(number, StreamStep.HOST_WAIT, -1 if what is Call.SYNC_DEVICE else stream)
            links.append((at, waited))
            waits.append(HostWait(number, int(done.end[at] - done.start[at]), place[int(done.record[at])]))
        elif what in _TAKES:
            taken.append(DriverMemory(number, _TAKES[what], place[int(done.record[at])]))
    return DeviceOps(
        calls=len(borders),
        call=call,
        start=ran.start[rows],
        end=ran.end[rows],
        stream=done.stream[instruction].astype(np.int64),
        kind=ops.kind[op],
        direction=ops.direction[op],
        bytes=np.where(ops.direction[op] != CopyDirection.NONE, ops.bytes[op], -1),
        graph=done.what[instruction] == Call.GRAPH_LAUNCH,
        place=tuple(place[each] for each in record.tolist()),
        main_stream=main,
        links=tuple(link for _, link in sorted(links, key=lambda each: each[0])),
        waits=tuple(waits),
        taken=tuple(taken),
    )


def _call_of(instruction: I64, borders: I64) -> I64:
    """Returns, for each instruction, the index of the call that contains the instruction, or -1."""
    call = np.searchsorted(borders[:, 0], instruction, side="right") - 1
    within = (call >= 0) & (instruction < borders[np.maximum(call, 0), 1])
    return np.where(within, call, -1)


class _PlaceOfRecord(dict[int, str | None]):
    """A dict from the number of a record of the simulation to its `file:line`, or to None if the line is not known."""

    def __init__(self, stack: np.ndarray, place_of: Callable[[int], str]) -> None:
        self._stack, self._place_of = stack, place_of
        self._by_stack: dict[int, str | None] = {}

    def __missing__(self, record: int) -> str | None:
        stack = int(self._stack[record])
        if stack not in self._by_stack:
            self._by_stack[stack] = self._place_of(stack).split(" in ")[0] or None
        self[record] = self._by_stack[stack]
        return self[record]
