"""A virtual GPU: simulates what a CUDA program does on a real GPU."""

from __future__ import annotations

from unstall.virtual.allocator.blocks import Block
from unstall.virtual.allocator.caching import CachingAllocator
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError

__all__ = ["Block", "CachingAllocator", "OutOfMemoryError"]
