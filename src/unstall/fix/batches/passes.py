"""State that is shared by all iterations of one `prefetch` over its data loader."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Protocol

from unstall.fix.batches.prefetch_stats import PrefetchCounters, PrefetchStats
from unstall.fix.batches.producer import Producer
from unstall.fix.tensors.staging import Sender


class Pass(Protocol):
    """One iteration of a `prefetch` over its loader. Other iterations of the same `prefetch` call these methods."""

    def is_open(self) -> bool: ...

    def step_aside(self) -> None: ...


class Passes:
    """State that is shared by all iterations (passes) of one `prefetch` over its loader. This object has only weak
    references to the iterations, because an iteration must end when the program drops it."""

    def __init__(self) -> None:
        self.counters = PrefetchCounters()
        self.sender: Sender | None = None  # kept for the next pass: it has learned how the loader uses memory
        self.state: Mapping[str, object] | None = None  # the loader's state after the last batch that the program got
        self._left: Producer | None = None  # a producer that was closed during a fetch and has not ended yet
        self._decided: tuple[int, str] | None = None  # depth, and why; kept from pass to pass
        self._begun: weakref.WeakSet[Pass] = weakref.WeakSet()

    @property
    def depth(self) -> int:
        """The largest number of batches that are fetched ahead. 0 if no batches are fetched ahead, or if the number has
        not been chosen yet."""
        return self._decided[0] if self._decided else 0

    def make_room(self) -> None:
        """Makes all earlier iterations stop fetching on other threads. It is called before a new iteration begins."""
        for other in list(self._begun):
            other.step_aside()
        if self._left is not None:
            self._left.close(patience_s=None)
            self._left = None

    def begin(self, one: Pass) -> None:
        self._begun.add(one)
        if self._decided is None:
            self.fetch_ahead(0, "the first batches are being measured")

    def others_are_open(self, one: Pass) -> bool:
        return any(other is not one and other.is_open() for other in self._begun)

    def leave(self, producer: Producer) -> None:
        """Stores a producer that was closed while its thread was still using the loader. The next iteration waits until
        this thread has ended."""
        self._left = producer

    def fetch_ahead(self, depth: int, why: str) -> None:
        """Sets how many batches are fetched ahead from now on.

        Args:
            depth: The number of batches. 0: no batches are fetched ahead.
            why: The reason, which the statistics show.
        """
        self._decided = depth, why

    def stats(self) -> PrefetchStats:
        counters = self.counters
        counters.add_copies()
        depth, note = self._decided or (0, "nothing was iterated yet")
        if counters.tensors == 0 and counters.empty is not None:
            note += f"; batches of type {counters.empty} hold no tensors: they are passed through"
        return PrefetchStats(
            batches=counters.batches,
            bytes=counters.bytes,
            fetch_ns=counters.fetching.ns,
            stage_ns=counters.staging.ns,
            copy_ns=counters.copy_ns,
            waited_ns=counters.waiting.ns,
            stalled_ns=counters.stalled_ns,
            depth=depth,
            note=note,
        )
