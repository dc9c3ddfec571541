"""A virtual GPU: simulates what a CUDA program would do on a real one."""

from __future__ import annotations

from unstall.virtual.allocator.blocks import Block
from unstall.virtual.allocator.caching import CachingAllocator
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError

__all__ = ["Block", "CachingAllocator", "OutOfMemoryError"]
