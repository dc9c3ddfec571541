"""Copies scalars to the host for `MetricBuffer`. One kernel packs all scalars of a step. One copy moves the scalars of
several steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from unstall.fix.tensors.accelerator import Accelerator, accelerator_of
from unstall.guest.instants import Instant, Span, TotalTime, instant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ScalarKind = tuple[torch.device, torch.dtype, int]
"""The device and the dtype of some scalars of a step, and how many they are."""

_BLOCKS = 2  # blocks allocated at a time
_READS = 5  # reads that are timed


class ScalarBlock:
    """Memory for the scalars of a few steps, with one row for each step. The rows are packed on the device. One copy
    then moves all rows to pinned host memory.

    If a step has only one scalar, the scalar is copied to pinned memory immediately. All work on a block must be on the
    stream of the block. On another stream, the block's device memory might still be in use by earlier tensors, which
    were freed on the stream of the block.
    """

    __slots__ = ("_host", "_packed", "_pinned", "_rows", "_used", "kind", "stream")

    def __init__(self, kind: ScalarKind, rows: int, stream: torch.Stream) -> None:
        """Allocates the block. `stream` must be the current stream."""
        device, dtype, width = kind
        self.kind, self.stream = kind, stream
        self._used = 0
        with torch.inference_mode(False):  # writable outside of inference mode too
            self._pinned = torch.empty((rows, width), dtype=dtype, device="cpu", pin_memory=True)
            self._packed = torch.zeros((rows, width), dtype=dtype, device=device) if width > 1 else None
            scalars = (self._pinned if self._packed is None else self._packed).view(-1).unbind()
            self._host = _readable(self._pinned)
        self._rows = [list(scalars[row * width : (row + 1) * width]) for row in range(rows)]

    def put(self, scalars: list[torch.Tensor]) -> int:
        """Adds the scalars of a step as a new row. Returns the number of the row."""
        row = self._used
        self._used += 1
        if self._packed is None:
            self._rows[row][0].copy_(scalars[0], non_blocking=True)
        else:
            torch._foreach_copy_(self._rows[row], scalars)
        return row

    def send(self) -> None:
        """Begins to copy all rows to the host, on the current stream."""
        if self._packed is not None:
            self._pinned.copy_(self._packed, non_blocking=True)

    def read(self) -> list[list[float]]:
        """Returns all rows as lists of numbers, and marks the block as empty. Call this after the copy to the host has
        ended."""
        self._used = 0
        rows: list[list[float]] = self._host.tolist()
        return rows


class MetricBatch:
    """Consecutive steps whose scalars are copied to the host together. They are copied as soon as the batch has `limit`
    steps, or earlier."""

    __slots__ = ("_blocks", "_pool", "_read", "_streams", "behind", "first", "limit", "sent", "sent_at", "unready")

    def __init__(self, pool: ScalarPool, first: int, limit: int, *, behind: bool) -> None:
        self._pool = pool
        self._blocks: dict[ScalarKind, ScalarBlock] = {}
        self._streams: dict[Accelerator, torch.Stream] = {}
        self._read: dict[ScalarKind, list[list[float]]] | None = None
        self.first, self.limit = first, limit
        self.behind = behind  # whether the device was not yet done with the batch before
        self.sent: list[torch.Event] | None = None  # the copies' ends; None: not sent yet
        self.sent_at: Instant = 0
        self.unready: Span | None = None  # from sending to the last time that it was seen pending

    def fits(self, accelerator: Accelerator, stream: torch.Stream) -> bool:
        """Returns whether rows of scalars that are computed on `stream` can be added to this batch. All rows of a batch
        on one device must be on the same stream. If the batch has no row on the device `accelerator` yet, stores
        `stream` as their stream and returns True."""
        return bool(self._streams.setdefault(accelerator, stream) == stream)

    def put(self, kind: ScalarKind, scalars: list[torch.Tensor]) -> int:
        block = self._blocks.get(kind)
        if block is None:
            accelerator = accelerator_of(kind[0])
            assert accelerator is not None
            block = self._blocks[kind] = self._pool.block(kind, self._streams[accelerator])
        return block.put(scalars)

    def send(self) -> None:
        events = []
        for accelerator, stream in self._streams.items():
            blocks = [block for kind, block in self._blocks.items() if accelerator_of(kind[0]) is accelerator]
            if stream == accelerator.current():
                _send(blocks)
            else:
                with accelerator.on(stream):
                    _send(blocks)
            event = self._pool.event(accelerator)
            event.record(stream)
            events.append(event)
        self.sent = events
        self.sent_at = instant()

    def may_send(self) -> bool:
        """Returns whether no CUDA graph is being captured. During a capture, a copy would become part of the graph."""
        return not any(accelerator.capturing() for accelerator in self._streams)

    def is_computed(self) -> bool:
        """Returns whether the device has finished all work on the streams of this batch."""
        return all(stream.query() for stream in self._streams.values())

    def is_there(self) -> bool:
        if self._read is not None:
            return True
        for event in self.sent or ():
            if not event.query():
                self.unready = Span(self.sent_at, instant())
                return False
        return self.sent is not None

    def add_unready(self, total: TotalTime) -> None:
        """Adds a span to `total`: from the start of the copy of this batch to the last time at which the copy was seen
        in progress. Adds it only once. Does nothing if the copy was never seen in progress."""
        if self.unready is not None:
            total.add(self.unready)
            self.unready = None

    def wait(self) -> None:
        for event in self.sent or ():
            event.synchronize()

    def row(self, kind: ScalarKind, number: int) -> list[float]:
        """Returns the scalars of one step, after they were copied to the host. The first call reads all rows of the
        batch, and returns the memory of the batch to its pool.

        Args:
            kind: The device, the dtype and the number of the scalars.
            number: The number of the row, as `put` returned it.
        """
        if self._read is None:
            self._read = {kind: block.read() for kind, block in self._blocks.items()}
            self._pool.take_back(list(self._blocks.values()), list(self._streams), self.sent or [])
        return self._read[kind][number]


class ScalarPool:
    """A pool of blocks (memory for scalars) and events. After use, a block or an event goes back to the pool, to be
    used again."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._blocks: dict[tuple[ScalarKind, torch.Stream], list[ScalarBlock]] = {}
        self._events: dict[Accelerator, list[torch.Event]] = {}

    def block(self, kind: ScalarKind, stream: torch.Stream) -> ScalarBlock:
        """Returns a block that is not in use. `stream` must be the current stream."""
        free = self._blocks.setdefault((kind, stream), [])
        if not free:  # one is filled while another is copied
            free += [ScalarBlock(kind, self._rows, stream) for _ in range(_BLOCKS)]
        return free.pop()

    def event(self, accelerator: Accelerator) -> torch.Event:
        free = self._events.get(accelerator)
        return free.pop() if free else accelerator.event()

    def take_back(self, blocks: list[ScalarBlock], accelerators: list[Accelerator], events: list[torch.Event]) -> None:
        for block in blocks:
            self._blocks.setdefault((block.kind, block.stream), []).append(block)
        for accelerator, event in zip(accelerators, events, strict=True):
            self._events.setdefault(accelerator, []).append(event)


def read_ns(accelerator: Accelerator) -> int:
    """Measures five calls of `.item()` on an idle device. Returns the shortest time in ns. This time includes the call,
    the copy and the wake-up of the host."""
    took = []
    with torch.no_grad(), accelerator.on(accelerator.stream("reads")):
        scalar = torch.zeros((), device=accelerator.device)
        for _ in range(_READS):
            start = time.perf_counter_ns()
            scalar.item()
            took.append(time.perf_counter_ns() - start)
    return min(took)


def _readable(host: torch.Tensor) -> torch.Tensor | NDArray[np.generic]:
    """Returns a NumPy view of the tensor, because NumPy's `tolist` is faster than torch's. Returns the tensor itself if
    NumPy does not have the tensor's dtype."""
    try:
        return host.numpy()
    except (RuntimeError, TypeError):
        return host


def _send(blocks: list[ScalarBlock]) -> None:
    for block in blocks:
        block.send()
