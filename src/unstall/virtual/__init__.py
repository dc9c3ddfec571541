"""A GPU that is not there: what a CUDA program would do on it."""

from __future__ import annotations

from unstall.virtual.allocator import CachingAllocator
from unstall.virtual.blocks import Block
from unstall.virtual.out_of_memory import OutOfMemoryError

__all__ = ["Block", "CachingAllocator", "OutOfMemoryError"]
