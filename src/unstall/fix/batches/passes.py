"""What the passes of one prefetch over its loader share, and one leaves to the next."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from unstall.fix.batches.prefetch_stats import PrefetchCounters, PrefetchStats
from unstall.fix.batches.producer import Producer
from unstall.fix.tensors.staging import Sender


class Pass(Protocol):
    """What the others ask of one."""

    def is_open(self) -> bool: ...

    def step_aside(self) -> None: ...


class Passes:
    """All of one prefetch. They have this object; it has none of them."""

    def __init__(self) -> None:
        self.counters = PrefetchCounters()
        self.sender: Sender | None = None  # what it learns of the loader's memory holds for the next pass too
        self.state: Any = None  # the loader's, as it was after the batch that the program got last
        self._left: Producer | None = None  # one that was closed while it fetched, and did not end soon
        self._settled: tuple[int, str] | None = None  # depth, and why: of passes before, too
        self._begun: weakref.WeakSet[Pass] = weakref.WeakSet()

    @property
    def depth(self) -> int:
        """How many batches are fetched ahead."""
        return self._settled[0] if self._settled else 0

    def make_room(self) -> None:
        """Another pass is to begin: no other is left to use the loader beside it."""
        for other in list(self._begun):
            other.step_aside()
        if self._left is not None:
            self._left.close(patience_s=None)
            self._left = None

    def begin(self, one: Pass) -> None:
        self._begun.add(one)
        if self._settled is None:
            self.settle(0, "the first batches are being measured")

    def others_are_open(self, one: Pass) -> bool:
        return any(other is not one and other.is_open() for other in self._begun)

    def leave(self, producer: Producer) -> None:
        """It still uses the loader."""
        self._left = producer

    def settle(self, depth: int, why: str) -> None:
        """So many batches are fetched ahead from now on."""
        self._settled = depth, why

    def stats(self) -> PrefetchStats:
        counters = self.counters
        counters.settle()
        depth, note = self._settled or (0, "nothing was iterated yet")
        if counters.tensors == 0 and counters.empty is not None:
            note += f"; no tensor is seen in batches of type {counters.empty}: they come as they are"
        return PrefetchStats(
            batches=counters.batches,
            bytes=counters.bytes,
            fetch_ns=counters.fetch_ns,
            stage_ns=counters.stage_ns,
            copy_ns=counters.copy_ns,
            waited_ns=counters.waited_ns,
            stalled_ns=counters.stalled_ns,
            depth=depth,
            note=note,
        )
