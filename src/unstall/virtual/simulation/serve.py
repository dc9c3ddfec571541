"""Handles memory requests and graph captures one by one, because their order matters. Handles the memory requests and
graph captures of a batch before the other records of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from unstall.timeline.columns import Bool
from unstall.virtual.allocator.blocks import PoolId, pool_of_number
from unstall.virtual.costs.model import Costs, OperatorCost
from unstall.virtual.log import DIRECTION_BITS, CopyFlag, LogCode, chosen
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.captures import Capture
from unstall.virtual.simulation.cublas_handles import CublasHandles
from unstall.virtual.simulation.log_batch import LogBatch
from unstall.virtual.simulation.requests import Requests
from unstall.virtual.simulation.staging import PIECES, Staging, pieces_of

_ALWAYS = chosen(
    *(LogCode.MALLOC, LogCode.FREE, LogCode.USE_STREAM, LogCode.EMPTY_CACHE),
    *(LogCode.CAPTURE_BEGIN, LogCode.CAPTURE_END, LogCode.GRAPH_FREE),
)
_ON_STREAMS = chosen(
    LogCode.LAUNCH, LogCode.COPY, LogCode.SLEEP, LogCode.EVENT_RECORD, LogCode.EVENT_WAIT, LogCode.GRAPH_LAUNCH
)
_OPS = (LogCode.LAUNCH, LogCode.COPY, LogCode.SLEEP, LogCode.GRAPH_LAUNCH)


class BatchSimulation(Protocol):
    """The methods of the simulation that `Server` uses."""

    costs: Costs
    actions: Actions

    def run(self, batch: LogBatch, until: int) -> None:
        """Simulates the batch's records before row `until`."""

    def now(self, thread: int) -> int:
        """Returns a thread's virtual clock in ns."""

    def when_done(self, event: int) -> int | None:
        """Returns the time in ns at which the last recording of the event is complete. Returns None if the event was
        never recorded.
        """

    def forget(self, events: Iterable[int]) -> None:
        """Removes events that are no longer used."""


class Server:
    """Handles memory requests and graph captures in the order of the log. Inserts each driver call right before the log
    record that caused the driver call.
    """

    def __init__(self, simulation: BatchSimulation, settings: str) -> None:
        self._simulation = simulation
        self.requests = Requests(simulation.costs.device, settings, self)
        self._batch = LogBatch(np.zeros(0), 0)
        self._row = 0
        self._events = 0
        self._handles = CublasHandles()
        self._captures: dict[int, Capture] = {}
        self._pool_of: dict[int, tuple[int, PoolId]] = {}  # by graph: (device, pool)
        self._staging: dict[int, Staging] = {}  # by device

    def serve(self, batch: LogBatch) -> None:
        self._batch = batch
        records = batch.records
        code = records["code"]
        self._handles.know(records["thread"], records["stack"])
        wanted = _ALWAYS[code]
        launches = np.flatnonzero(code == LogCode.LAUNCH)
        wanted[launches] = self._simulation.actions.needs_memory[records["id"][launches]]
        staged = self._is_staged(records)
        wanted |= staged
        if self._captures or (code == LogCode.CAPTURE_BEGIN).any():
            wanted |= _ON_STREAMS[code]
        rows = np.flatnonzero(wanted)
        mine = records[rows]
        columns = (mine[name].tolist() for name in ("code", "device", "stream", "a", "b", "id"))
        requests, number, on_streams = self.requests, batch.number, _ON_STREAMS.tolist()
        for row, code_, device, stream, a, b, id_ in zip(rows.tolist(), *columns, strict=True):
            self._row = row
            if code_ == LogCode.MALLOC:
                requests.malloc(number + row, device, stream, a, b)
            elif code_ == LogCode.FREE:
                requests.free(number + row, a)
            elif code_ == LogCode.USE_STREAM:
                requests.use_on_stream(a, stream)
            elif code_ == LogCode.EMPTY_CACHE:
                requests.empty_cache(number + row, device)
            elif on_streams[code_]:
                if staged[row]:
                    self._stage(device, stream, a, int(records["flags"][row]))
                self._on_stream(code_, device, stream, a, b, id_)
            else:
                self._graph(code_, device, stream, a, b)

    # The driver calls of the allocators.

    def device_malloc(self, device: int) -> None:
        self._insert(self._simulation.actions.device_malloc, device)

    def device_free(self, device: int) -> None:
        self._insert(self._simulation.actions.device_free, device)

    def record(self, device: int, stream: int) -> int:
        self._events -= 1
        self._insert(self._simulation.actions.block_record, device, stream, self._events)
        return self._events

    def query(self, event: int) -> bool:
        """Returns whether an event is complete. If the answer is not known yet, first simulates everything before the
        current log record.
        """
        simulation, batch = self._simulation, self._batch
        thread = int(batch.records["thread"][self._row])
        done = simulation.when_done(event)
        if done is None or done > simulation.now(thread):
            simulation.run(batch, self._row)
            done = simulation.when_done(event)
        self._insert(simulation.actions.block_query, 0)
        if done is None or done > simulation.now(thread):
            return False
        simulation.forget([event])
        return True

    def has_workspaces(self, thread: int, device: int, stream: int, cost: OperatorCost) -> bool:
        """Returns whether all workspaces that an operator needs are already allocated. The operator would be launched
        by `thread`.
        """
        return self.requests.has_workspaces(device, stream, self._handles.would_be(thread), cost)

    def synchronize(self, event: int) -> None:
        self._insert(self._simulation.actions.block_sync, 0, 0, event)

    def _is_staged(self, records: np.ndarray) -> Bool:
        """Returns which records are copies through the driver's pinned pieces."""
        flags = records["flags"]
        staged: Bool = (
            (records["code"] == LogCode.COPY)
            & (flags & DIRECTION_BITS == CopyFlag.HOST_TO_DEVICE)
            & (flags & (CopyFlag.PINNED | CopyFlag.VALUE | CopyFlag.SIMULATED) == 0)
            & (records["a"] > self._simulation.costs.limits.staged_at_once_bytes)
        )
        return staged

    def _stage(self, device: int, stream: int, size_bytes: int, flags: int) -> None:
        """Inserts the waits of a copy from pageable memory for the driver's pinned pieces."""
        actions, batch = self._simulation.actions, self._batch
        staging, pieces = self._staging.setdefault(device, Staging()), pieces_of(size_bytes)
        self._events -= 1
        busy = staging.take(pieces, self._events) if pieces <= PIECES else staging.take_all()
        for nth, event in enumerate(busy):
            self._insert(actions.staging_sync if nth else actions.first_staging_sync, device, stream, event)
        if busy:
            batch.instead[self._row] = actions.rest_of_copy(size_bytes, flags)
        if pieces <= PIECES:
            batch.events[self._row] = self._events

    def _insert(self, recipe: int, device: int, stream: int = 0, event: int = 0) -> None:
        self._batch.insertions.add(self._row, recipe, device, stream, event)

    def _on_stream(self, code: int, device: int, stream: int, a: int, b: int, id_: int) -> None:
        """Handles work on a stream. Allocates an operator's workspaces and temporary memory. Adds captured work to its
        graph capture.
        """
        simulation, place = self._simulation, (device, stream)
        if code == LogCode.LAUNCH and simulation.actions.needs_memory[id_]:
            number = self._batch.number + self._row
            handle = self._handles.of(int(self._batch.records["thread"][self._row]))
            cost = simulation.actions.operators[id_]
            ran = self.requests.operate(number, device, stream, handle, cost, b)
            if ran is not cost:
                self._batch.instead[self._row] = simulation.actions.instead(id_, ran)
        for capture in self._captures.values():
            if code == LogCode.EVENT_WAIT and capture.wait(a, place):
                self._batch.captured[self._row] = True
            elif capture.holds(place):
                self._batch.captured[self._row] = True
                if code == LogCode.EVENT_RECORD:
                    capture.record(a, place)
                elif code in _OPS:
                    recipe = self._batch.recipes(simulation.actions, self._row, self._row + 1)[0]
                    capture.add(simulation.actions.recipes.ops_of(int(recipe)), place)

    def _graph(self, code: int, device: int, stream: int, a: int, b: int) -> None:
        """Begins or ends a graph's capture, or frees the graph and its private pool."""
        requests = self.requests
        if code == LogCode.CAPTURE_BEGIN:
            capture = self._captures[a] = Capture(a, (device, stream))
            self._pool_of[a] = device, pool_of_number(b)

            def captures(on: int, capture: Capture = capture, device: int = device) -> bool:
                return capture.holds((device, on))

            requests.pool_begin(device, pool_of_number(b), captures)
        elif code == LogCode.CAPTURE_END:
            ended = self._captures.pop(a, None)
            if ended is not None:
                requests.pool_end(*self._pool_of[a])
                ended.finish(self._simulation.actions)
        elif code == LogCode.GRAPH_FREE:
            held = self._pool_of.pop(a, None)
            if held is not None:
                requests.pool_release(*held)
