"""Chooses the cached block for a request, and decides whether to split the block."""

from __future__ import annotations

from unstall.virtual.allocator.blocks import Block, BlockPool
from unstall.virtual.allocator.settings import MIN_BLOCK, SMALL_SIZE, AllocatorSettings


def best_fit(pool: BlockPool, stream: int, size: int, settings: AllocatorSettings) -> Block | None:
    """Returns the stream's best-fitting free block for `size` bytes, or None if no block fits.

    The block is not removed from its pool.
    """
    block = _smallest(pool, stream, size, settings.expandable_segments)
    limit = settings.max_split_size
    if block is None or size < limit <= block.size:
        return None
    if size >= limit and block.size >= size + settings.max_non_split_rounding:
        return None
    return block


def should_split(block: Block, size: int, settings: AllocatorSettings) -> bool:
    """Returns whether to split the block for a request of `size` bytes. After a split, the rest is a free block."""
    rest = block.size - size
    if block.pool.is_small or settings.expandable_segments:
        return rest >= MIN_BLOCK
    return size < settings.max_split_size and rest > SMALL_SIZE


def _smallest(pool: BlockPool, stream: int, size: int, expandable: bool) -> Block | None:
    """Returns the smallest free block that is large enough, or None if no free block is large enough.

    In expandable segments, the unmapped pages after a block count as part of the block's size, because the block can
    grow into these pages.
    """
    block = pool.free.first(stream, size)
    if block is None or block.segment is None:
        return block
    fitting = pool.free.from_(stream, size)
    next(fitting)
    if not expandable:
        return next((other for other in fitting if other.segment is None), None)
    for other in fitting:
        if block.segment is None or _expandable_size(other) >= _expandable_size(block):
            break
        block = other
    return block


def _expandable_size(block: Block) -> int:
    return block.size + (block.next.size if block.next and not block.next.mapped else 0)
