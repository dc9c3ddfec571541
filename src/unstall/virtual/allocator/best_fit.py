"""Chooses the cached block for a request, and decides whether the block is split."""

from __future__ import annotations

from unstall.virtual.allocator.blocks import Block, BlockPool
from unstall.virtual.allocator.settings import MIN_BLOCK, SMALL_SIZE, AllocatorSettings


def best_fit(pool: BlockPool, stream: int, size: int, settings: AllocatorSettings) -> Block | None:
    """Returns the free block that fits a request best, or None if none does. The block stays in its
    pool.

    Args:
        pool: The pool of the request.
        stream: The stream of the request. Only blocks that were allocated on it fit.
        size: The size of the request in bytes, rounded up as torch does.
        settings: The settings of the allocator.
    """
    block = _smallest(pool, stream, size, settings.expandable_segments)
    limit = settings.max_split_size
    if block is None or size < limit <= block.size:
        return None
    if size >= limit and block.size >= size + settings.max_non_split_rounding:
        return None
    return block


def should_split(block: Block, size: int, settings: AllocatorSettings) -> bool:
    """Returns whether a request of `size` bytes gets only the first part of `block`, so that the
    rest stays a free block.
    """
    rest = block.size - size
    if block.pool.is_small or settings.expandable_segments:
        return rest >= MIN_BLOCK
    return size < settings.max_split_size and rest > SMALL_SIZE


def _smallest(pool: BlockPool, stream: int, size: int, expandable: bool) -> Block | None:
    """Returns the smallest free block that is large enough, or None if none is.

    In expandable segments, pages after a block that are not mapped count towards its size, because
    the block can grow into them.
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
