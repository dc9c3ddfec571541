"""Waits for batches that a helper of `unstall.fix` fetches on another thread. Recordings show them as data loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from unstall.frameworks import PREFETCH_WAIT

Batch = TypeVar("Batch")


def waited_for(take: Callable[[], Batch]) -> Batch:
    """Returns `take()`, which waits for a batch.

    `torch.profiler` and the virtual GPU record the wait by an annotation like that of torch's DataLoader. The recorder
    `cupti` watches this function, so it must be looked up in this module at each call.
    """
    with torch.autograd.profiler.record_function(PREFETCH_WAIT):
        return take()
