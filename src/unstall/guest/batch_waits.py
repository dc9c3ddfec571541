"""Waits for batches that a helper of `unstall.fix` fetches on another thread. Recordings show them as data loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from unstall.frameworks import PREFETCH_WAIT

Batch = TypeVar("Batch")


def waited_for(take: Callable[[], Batch]) -> Batch:
    """Calls `take`, which waits for a batch, and returns the batch. Recordings then show the call as data loading.

    `torch.profiler` and the virtual GPU see the wait by a `record_function` annotation that is named like that of
    torch's DataLoader. The recorder `cupti` patches this function, so each caller must look it up in this module.
    """
    with torch.autograd.profiler.record_function(PREFETCH_WAIT):
        return take()
