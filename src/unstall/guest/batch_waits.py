"""Marks waits for batches that a function of `unstall.fix` fetches on another thread. Recordings show these waits as
data loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from unstall.frameworks import PREFETCH_WAIT

Batch = TypeVar("Batch")


def waited_for(take: Callable[[], Batch]) -> Batch:
    """Calls `take`, which waits for a batch. Returns the batch. Recordings show the time of the call as data loading.

    A `record_function` annotation shows the wait to `torch.profiler` and to the virtual GPU. The annotation's name is
    similar to the name of the DataLoader's annotation. The recorder `cupti` replaces this function in this module. So a
    caller must use `batch_waits.waited_for`, not an imported reference to the function.
    """
    with torch.autograd.profiler.record_function(PREFETCH_WAIT):
        return take()
