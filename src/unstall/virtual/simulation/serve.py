"""Handles the memory requests and the captures of CUDA graphs in a batch of the shim's log, one by
one, because their order matters. This is done before the batch is simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np

from unstall.timeline.columns import Bool
from unstall.virtual.allocator.blocks import PoolId, pool_of_number
from unstall.virtual.costs.model import Costs, OperatorCost
from unstall.virtual.log import DIRECTION_BITS, RECORD, USE, CopyFlag, LogCode, chosen
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.captures import Capture
from unstall.virtual.simulation.cublas_handles import CublasHandles
from unstall.virtual.simulation.data_numbers import DataNumbers
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
    """What `Server` uses of the simulation.

    Attributes:
        costs: The costs of operators, copies and calls.
        actions: Finds what is simulated for each record of the shim's log.
    """

    costs: Costs
    actions: Actions

    def run(self, batch: LogBatch, until: int) -> None:
        """Simulates the records of `batch` before row `until`."""

    def now(self, thread: int) -> int:
        """Returns the virtual time of `thread`, in ns."""

    def when_done(self, event: int) -> int | None:
        """Returns when the last recording of `event` completes, in ns of the virtual clock. Returns
        None if the event was never recorded.
        """

    def forget(self, events: Iterable[int]) -> None:
        """Forgets CUDA events that nothing refers to any more."""


class Server:
    """Handles memory requests and captures of CUDA graphs in the order of the shim's log. Inserts
    the driver calls that the memory requests need right before the records that make them
    necessary.

    Attributes:
        requests: Serves the requests for memory.
        data: Numbers the memory that records use.
    """

    def __init__(self, simulation: BatchSimulation, settings: str) -> None:
        self._simulation = simulation
        self.data = DataNumbers()
        self.requests = Requests(simulation.costs.device, settings, self, self.data)
        self._batch = LogBatch(np.zeros(0, RECORD), 0, np.zeros(0, USE))
        self._row = 0
        self._events = 0
        self._handles = CublasHandles()
        self._captures: dict[int, Capture] = {}
        self._pool_of: dict[int, tuple[int, PoolId]] = {}  # by graph: (device, pool)
        self._staging: dict[int, Staging] = {}  # by device

    def serve(self, batch: LogBatch) -> None:
        """Handles the memory requests and captures in `batch`. Its captured records are marked, and
        calls of the driver are inserted into it.
        """
        self._batch = batch
        records = batch.records
        code = records["code"]
        self._handles.know(records["thread"], records["stack"])
        wanted = _ALWAYS[code]
        launches = np.flatnonzero(code == LogCode.LAUNCH)
        actions, signatures = self._simulation.actions, records["id"][launches]
        wanted[launches] = actions.needs_memory[signatures] | actions.is_convolution[signatures]
        staged = self._is_staged(records)
        wanted |= staged
        if self._captures or (code == LogCode.CAPTURE_BEGIN).any():
            wanted |= _ON_STREAMS[code]
        rows = np.flatnonzero(wanted)
        mine = records[rows]
        columns = (mine[name].tolist() for name in ("code", "device", "stream", "a", "b", "id", "stack"))
        requests, number, on_streams = self.requests, batch.number, _ON_STREAMS.tolist()
        for row, code_, device, stream, a, b, id_, stack in zip(rows.tolist(), *columns, strict=True):
            self._row, requests.stacks.now = row, stack
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
        """Inserts a call of cudaMalloc right before the record that is being handled."""
        self._insert(self._simulation.actions.device_malloc, device)

    def device_free(self, device: int) -> None:
        """Inserts a call of cudaFree right before the record that is being handled."""
        self._insert(self._simulation.actions.device_free, device)

    def record(self, device: int, stream: int) -> int:
        """Inserts a call of cudaEventRecord right before the record of the log that is being
        handled. Returns the number of the new event.
        """
        self._events -= 1
        self._insert(self._simulation.actions.block_record, device, stream, self._events)
        return self._events

    def query(self, event: int) -> bool:
        """Inserts a call of cudaEventQuery right before the record of the log that is being
        handled, and returns whether `event` is complete. If that is not known yet, first simulates
        all records before this one.
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
        """Returns whether all workspaces of an operator are allocated already, if `thread` launched it next."""
        return self.requests.has_workspaces(device, stream, self._handles.would_be(thread), cost)

    def synchronize(self, event: int) -> None:
        """Inserts a call of cudaEventSynchronize right before the record of the log that is being handled."""
        self._insert(self._simulation.actions.block_sync, 0, 0, event)

    def _is_staged(self, records: np.ndarray) -> Bool:
        """Returns, for each record, whether it is a copy that goes through the driver's pinned
        buffers (see `staging`).
        """
        flags = records["flags"]
        staged: Bool = (
            (records["code"] == LogCode.COPY)
            & (flags & DIRECTION_BITS == CopyFlag.HOST_TO_DEVICE)
            & (flags & (CopyFlag.PINNED | CopyFlag.VALUE | CopyFlag.SIMULATED) == 0)
            & (records["a"] > self._simulation.costs.limits.staged_at_once_bytes)
        )
        return staged

    def _stage(self, device: int, stream: int, size_bytes: int, flags: int) -> None:
        """Inserts the waits of a copy from pageable memory until the driver's pinned buffers are
        free (see `staging`).
        """
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
        """Handles a record of work on a stream: allocates the memory that an operator needs besides
        its outputs, and adds the work to the CUDA graph if it is captured. The arguments are fields
        of the record.
        """
        simulation, place = self._simulation, (device, stream)
        if code == LogCode.LAUNCH and simulation.actions.is_convolution[id_]:
            self.requests.load_cudnn(device)
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
                    data = int(self._batch.data(self.data, self._row, self._row + 1)[0])
                    own = simulation.actions.recipes.ops_of(int(recipe))
                    capture.add([replace(op, data=data) for op in own], place)

    def _graph(self, code: int, device: int, stream: int, a: int, b: int) -> None:
        """Handles a record that begins or ends the capture of a CUDA graph, or frees the graph with
        its private pool. The arguments are fields of the record.
        """
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
