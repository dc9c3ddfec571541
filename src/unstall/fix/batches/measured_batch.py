"""What one of the first batches of a prefetch tells of the loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unstall.fix.batches.fetching import FetchedBatch
from unstall.fix.tensors.accelerator import milliseconds
from unstall.fix.tensors.staging import SMALL_BYTES

HANDING_OVER_NS = 20_000  # by one thread to another, at the least


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """A batch without its tensors: these live as long as the program has them."""

    batch: FetchedBatch
    pinned: bool
    bytes: int
    largest_bytes: int  # of one tensor that was copied
    start: Any
    end: Any

    def stage_and_copy_ns(self) -> int:
        self.end.synchronize()
        return self.batch.stage_ns + int(milliseconds(self.start, self.end) * 1e6)

    def is_small(self) -> bool:
        """Whether the driver takes it along with the call, and nobody waits."""
        return self.largest_bytes <= SMALL_BYTES and not self.pinned

    def is_at_hand(self) -> bool:
        return not self.pinned and at_hand(self.largest_bytes, self.batch.fetch_ns)


def at_hand(largest_bytes: int, fetch_ns: int) -> bool:
    """Whether nothing of such batches could be hidden, however short a step is."""
    return largest_bytes <= SMALL_BYTES and fetch_ns < HANDING_OVER_NS
