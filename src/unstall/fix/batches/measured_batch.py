"""Measurements of one of the first batches that `prefetch` yields."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unstall.fix.batches.fetching import FetchedBatch
from unstall.fix.tensors.accelerator import milliseconds
from unstall.fix.tensors.staging import SMALL_BYTES

HANDING_OVER_NS = 20_000  # least time to pass a batch between threads


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """Measurements of one of the first batches. The object holds no reference to the batch's tensors, because the
    program must be able to free them.

    Attributes:
        batch: The batch without its tensors: the times of fetching it, and what the loader used for it.
        pinned: Whether the loader made some of its tensors in pinned memory.
        bytes: The bytes that were copied to the device.
        largest_bytes: The size in bytes of the largest tensor that was copied.
        start: An event before the copy to the device.
        end: An event after the copy to the device.
    """

    batch: FetchedBatch
    pinned: bool
    bytes: int
    largest_bytes: int
    start: torch.Event
    end: torch.Event

    def stage_and_copy_ns(self) -> int:
        self.end.synchronize()
        return self.batch.staging.ns + int(milliseconds(self.start, self.end) * 1e6)

    def is_small(self) -> bool:
        """Returns whether all tensors of the batch are small and in pageable memory. The driver copies such tensors to
        the device without waiting for the device."""
        return self.largest_bytes <= SMALL_BYTES and not self.pinned

    def is_at_hand(self) -> bool:
        return not self.pinned and at_hand(self.largest_bytes, self.batch.fetching.ns)


def at_hand(largest_bytes: int, fetch_ns: int) -> bool:
    """Returns whether a batch is so small and so fast to fetch that prefetching gains nothing, even if steps are short.

    Args:
        largest_bytes: The size in bytes of the largest tensor in the batch.
        fetch_ns: The time that the loader took for the batch, in ns.
    """
    return largest_bytes <= SMALL_BYTES and fetch_ns < HANDING_OVER_NS
