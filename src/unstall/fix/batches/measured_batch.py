"""Measurements of one of the first batches of a prefetch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unstall.fix.batches.fetching import FetchedBatch
from unstall.fix.tensors.accelerator import milliseconds
from unstall.fix.tensors.staging import SMALL_BYTES

HANDING_OVER_NS = 20_000  # least time to pass a batch between threads


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """Measurements of a batch. They do not include its tensors, so that only the program keeps these alive."""

    batch: FetchedBatch
    pinned: bool
    bytes: int
    largest_bytes: int  # size of the largest tensor that was copied
    start: torch.Event
    end: torch.Event

    def stage_and_copy_ns(self) -> int:
        self.end.synchronize()
        return self.batch.stage_ns + int(milliseconds(self.start, self.end) * 1e6)

    def is_small(self) -> bool:
        """Returns whether the driver copies the data within the call, so that nothing waits."""
        return self.largest_bytes <= SMALL_BYTES and not self.pinned

    def is_at_hand(self) -> bool:
        return not self.pinned and at_hand(self.largest_bytes, self.batch.fetch_ns)


def at_hand(largest_bytes: int, fetch_ns: int) -> bool:
    """Returns whether such batches cost so little that prefetching could not gain anything, even for short steps."""
    return largest_bytes <= SMALL_BYTES and fetch_ns < HANDING_OVER_NS
