"""Blocks that the program has freed but that other streams may still use."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import takewhile
from operator import attrgetter
from typing import Protocol

from unstall.virtual.allocator.blocks import Block, BlockPool


class StreamEvents(Protocol):
    """The CUDA events by which the allocator learns whether streams have finished with a block."""

    def record(self, stream: int) -> int:
        """Records an event on the stream, and returns the event's number."""

    def query(self, event: int) -> bool:
        """Returns whether the stream has done all work before the event."""

    def synchronize(self, event: int) -> None:
        """Waits until the stream has done all work before the event."""


class DoneAtOnce:
    """Stands for events of streams that do all work at once: every event is done, so none is waited for."""

    def record(self, stream: int) -> int:
        return stream

    def query(self, event: int) -> bool:
        return True

    def synchronize(self, event: int) -> None:
        return


class PendingFrees:
    """Freed blocks that cannot be used again yet, because other streams may still use them.

    After the free, an event is recorded on each of these streams. When all events of a block are
    done, the function `free` is called with the block.
    """

    def __init__(self, events: StreamEvents, free: Callable[[Block], None]) -> None:
        self._events = events
        self._free = free
        self._pending: dict[int, deque[tuple[int, Block]]] = {}
        self._deferred: list[Block] = []
        self._uses_in_captures: dict[Block, set[int]] = {}

    def __bool__(self) -> bool:
        """Whether any block waits."""
        return bool(self._pending or self._deferred)

    def use(self, block: Block, stream: int, capturing: bool) -> None:
        """Notes that `stream` uses the block, too. It must not be the stream on which the block was
        allocated. `capturing` says whether a CUDA graph is being captured.
        """
        block.stream_uses[stream] = None
        if capturing:
            self._uses_in_captures.setdefault(block, set()).add(stream)

    def add(self, block: Block, capturing: bool) -> None:
        """Adds a freed block that other streams have used.

        `capturing` says whether a CUDA graph is being captured. If it is, the block waits at least
        until the capture ends, because events cannot be queried before that.
        """
        if capturing:
            self._deferred.append(block)
            return
        self._uses_in_captures.pop(block, None)
        self._record(block)

    def process(self) -> None:
        """Frees each block whose events are all done. The events of a stream are looked at in
        order, up to the first that is not done.
        """
        self._record_deferred()
        for stream, pending in list(self._pending.items()):
            while pending and self._events.query(pending[0][0]):
                self._done(pending.popleft()[1])
            if not pending:
                del self._pending[stream]

    def wait_for_all(self) -> None:
        """Waits for the events of all blocks, and frees the blocks."""
        self._record_deferred()
        pending, self._pending = self._pending, {}
        for events in pending.values():
            for event, block in events:
                self._events.synchronize(event)
                self._done(block)

    def would_free(self, pool: BlockPool, stream: int, size: int, is_done: Callable[[int], bool]) -> bool:
        """Returns whether `process`, if it were called now, would leave a free block that is large
        enough for a request.

        Args:
            pool: The pool of the request.
            stream: The stream of the request.
            size: The size of the request in bytes.
            is_done: A function that returns whether an event is done, without a call of
                cudaEventQuery.
        """
        done: Counter[Block] = Counter()
        for pending in self._pending.values():
            done.update(block for _, block in takewhile(lambda each: is_done(each[0]), pending))
        freed = {block for block, count in done.items() if count == block.event_count}
        return any(
            block.pool is pool and block.stream == stream and _bytes_around(block, freed) >= size for block in freed
        )

    def _record(self, block: Block) -> None:
        streams, block.stream_uses = block.stream_uses, {}
        for stream in streams:
            block.event_count += 1
            self._pending.setdefault(stream, deque()).append((self._events.record(stream), block))

    def _record_deferred(self) -> None:
        """Records events for the blocks that were freed during captures.

        If a stream used a block only within a capture, it gets no event: it has joined the stream
        that captured.
        """
        deferred, self._deferred = self._deferred, []
        for block in deferred:
            for stream in self._uses_in_captures.pop(block, ()):
                block.stream_uses.pop(stream, None)
            self._record(block)
            if block.event_count == 0:
                self._free(block)

    def _done(self, block: Block) -> None:
        block.event_count -= 1
        if block.event_count == 0:
            self._free(block)


def _bytes_around(block: Block, freed: set[Block]) -> int:
    """Returns how large the free block around `block` would be if all blocks in `freed` were freed
    and merged with their neighbours.
    """
    total = block.size
    for next_to in (attrgetter("prev"), attrgetter("next")):
        neighbour = next_to(block)
        while neighbour is not None and neighbour.mapped == block.mapped and (neighbour.is_idle or neighbour in freed):
            total += neighbour.size
            neighbour = next_to(neighbour)
    return total
