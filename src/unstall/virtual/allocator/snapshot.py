"""Converts the blocks of the modelled allocator into the dicts of `torch.cuda.memory_snapshot()`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unstall.virtual.allocator.blocks import Block


def segments_of(blocks: Iterable[Block], device: int) -> list[dict[str, object]]:
    """Returns one dict for each segment, sorted by address, in the form of
    `torch.cuda.memory_snapshot()`, but with `stack` in place of `frames`: the number of the stack
    at which a segment or block was allocated, or -1.

    An expandable segment has one dict for each range of pages that are mapped side by side.
    `blocks` are all blocks of the device.
    """
    heads = [block for block in blocks if block.prev is None or not block.prev.mapped]
    return [_segment(head, device) for head in sorted(heads, key=lambda head: head.address)]


def _segment(head: Block, device: int) -> dict[str, object]:
    blocks = list(_mapped_from(head))
    active = [block for block in blocks if not block.is_idle]
    owner = head.pool.owner
    return {
        "device": device,
        "address": head.address,
        "total_size": sum(block.size for block in blocks),
        "allocated_size": sum(block.size for block in blocks if block.allocated),
        "active_size": sum(block.size for block in active),
        "requested_size": sum(block.requested_size for block in active),
        "stream": head.stream,
        "segment_type": "small" if head.pool.is_small else "large",
        "segment_pool_id": owner.pool_id if owner else (0, 0),
        "is_expandable": head.segment is not None,
        "stack": head.segment_stack,
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested_size,
                "state": _state(block),
                "stack": block.stack,
            }
            for block in blocks
        ],
    }


def _mapped_from(head: Block) -> Iterator[Block]:
    block: Block | None = head
    while block is not None and block.mapped:
        yield block
        block = block.next


def _state(block: Block) -> str:
    if block.allocated:
        return "active_allocated"
    return "inactive" if block.is_idle else "active_pending_free"
