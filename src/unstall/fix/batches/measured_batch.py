"""What one of the first batches of a prefetch shows of the loader."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unstall.fix.batches.fetching import FetchedBatch
from unstall.fix.tensors.accelerator import milliseconds
from unstall.fix.tensors.staging import SMALL_BYTES

HANDING_OVER_NS = 20_000  # what it takes at least to hand a batch from thread to thread


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """Measurements of a batch, without its tensors: the program decides how long these live."""

    batch: FetchedBatch
    pinned: bool
    bytes: int
    largest_bytes: int  # of one tensor that was copied
    start: torch.Event
    end: torch.Event

    def stage_and_copy_ns(self) -> int:
        self.end.synchronize()
        return self.batch.stage_ns + int(milliseconds(self.start, self.end) * 1e6)

    def is_small(self) -> bool:
        """Whether the driver takes it along with the call, so that nobody waits."""
        return self.largest_bytes <= SMALL_BYTES and not self.pinned

    def is_at_hand(self) -> bool:
        return not self.pinned and at_hand(self.largest_bytes, self.batch.fetch_ns)


def at_hand(largest_bytes: int, fetch_ns: int) -> bool:
    """Whether nothing could be hidden of such batches, however short a step is."""
    return largest_bytes <= SMALL_BYTES and fetch_ns < HANDING_OVER_NS
