"""Segments: the memory that the allocator gets from the driver, and gives back later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unstall.virtual.allocator.blocks import Block, BlockPool, ExpandableSegment, absorb, link, split_front
from unstall.virtual.allocator.device_memory import DeviceMemory
from unstall.virtual.allocator.kept_stacks import KeptStacks
from unstall.virtual.allocator.settings import LARGE_SEGMENT, SMALL_SEGMENT, round_up
from unstall.virtual.allocator.statistics import Statistics


@dataclass(frozen=True)
class TraceEntry:
    """One entry of torch's memory history: something that the allocator did.

    Attributes:
        action: What it did, in torch's words, such as "alloc" or "segment_free".
        address: The address of the block or segment; for "oom", the free bytes of the device.
        size: The size in bytes.
        stream: The stream of the block or segment.
        stack: The number of the Python stack that made it do so; -1 if it is unknown or not kept.
    """

    action: str
    address: int
    size: int
    stream: int
    stack: int = -1


Observer = Callable[[TraceEntry], None]
"""A function that is called with each new entry of torch's memory history."""


class Segments:
    """All segments of one device. Keeps the statistics up to date when a segment is reserved or given back."""

    def __init__(
        self, memory: DeviceMemory, statistics: Statistics, observer: Observer | None, stacks: KeptStacks
    ) -> None:
        self._memory = memory
        self._statistics = statistics
        self._stacks = stacks
        self.observer = observer

    @property
    def reserved_bytes(self) -> int:
        """The size of all segments together, in bytes."""
        return self._statistics.reserved_bytes.all.current

    def malloc(self, pool: BlockPool, stream: int, size: int, max_split_size: int) -> Block | None:
        """Does what `cudaMalloc` does.

        Args:
            pool: The pool for which the segment is reserved.
            stream: The stream for which it is reserved.
            size: Its size in bytes.
            max_split_size: The size in bytes from which on a segment counts as oversize.

        Returns:
            The new segment as a block, which lies in no pool; None if the device is full.
        """
        address = self._memory.malloc(size)
        if address is None:
            return None
        self._reserved(pool, size)
        self._statistics.segment.change(pool.is_small, 1)
        if size >= max_split_size:
            self._statistics.oversize_segments.change(1)
        self._tell("segment_alloc", address, size, stream)
        return Block(address, size, stream, pool, segment_stack=self._stacks.of_block())

    def free(self, block: Block, max_split_size: int) -> None:
        """Does what `cudaFree` does, for a free block that is a whole segment. `max_split_size` is
        the size in bytes from which on a segment counts as oversize.
        """
        block.pool.free.remove(block)
        self._memory.free(block.address, block.size)
        self._given_back(block.pool, block.size)
        self._statistics.segment.change(block.pool.is_small, -1)
        if block.size >= max_split_size:
            self._statistics.oversize_segments.change(-1)
        self._tell("segment_free", block.address, block.size, block.stream, block.segment_stack)

    def expand(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Maps pages after the free end of an expandable segment, or into a new one, until they are
        enough for a request.

        Returns a block of at least `size` bytes, which lies in no pool. Returns None if the device
        becomes full meanwhile: the pages that were mapped until then stay mapped, as free blocks.
        """
        candidate = self._room_to_expand(pool, stream, size)
        if not candidate.mapped and not self._map(candidate, min(candidate.size, size)):
            return None
        while candidate.size < size:
            unmapped = candidate.next
            assert unmapped is not None
            if not self._map(unmapped, min(size - candidate.size, unmapped.size)):
                return None
            candidate = unmapped
        pool.free.remove(candidate)
        return candidate

    def release_free(self, pool: BlockPool, max_split_size: int) -> None:
        """Gives back every segment of the pool that is free as a whole, and every free page of its
        expandable segments. `max_split_size` is the size in bytes from which on a segment counts as
        oversize.
        """
        free = list(pool.free)
        for block in free:
            if block.segment is None and not block.is_split:
                self.free(block, max_split_size)
        for block in free:
            if block.segment is not None:
                self._unmap(block, block.segment)

    def _room_to_expand(self, pool: BlockPool, stream: int, size: int) -> Block:
        """Returns the first block, by address, from which on `size` bytes in a row are free or not
        mapped. If there is none, reserves a new segment.
        """
        for unmapped in pool.unmapped.from_(stream):
            start = unmapped.prev if unmapped.prev is not None and unmapped.prev.is_idle else unmapped
            if _idle_bytes(start, size) >= size:
                return start
        page = SMALL_SEGMENT if pool.is_small else LARGE_SEGMENT
        span = round_up(self._memory.total_bytes + self._memory.total_bytes // 8, page)
        segment = ExpandableSegment(self._memory.addresses.reserve(span), span, page)
        block = Block(segment.address, span, stream, pool, segment, mapped=False)
        pool.unmapped.add(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Maps the first pages of a block that is not mapped. This part becomes free, and merges
        with free neighbours. Returns False if the device is full.
        """
        assert block.segment is not None
        pool = block.pool
        mapped_size = round_up(size, block.segment.page)
        if not self._memory.map(mapped_size):
            return False
        address = block.address
        pool.unmapped.remove(block)
        if mapped_size < block.size:
            rest = Block(
                address + mapped_size, block.size - mapped_size, block.stream, pool, block.segment, mapped=False
            )
            link(rest, block.next)
            link(block, rest)
            pool.unmapped.add(rest)
            block.size = mapped_size
        block.mapped = True
        block.segment_stack = self._stacks.of_block()
        absorb(block, block.prev)
        absorb(block, block.next)
        pool.add_free(block)
        self._reserved(pool, mapped_size)
        self._tell("segment_map", address, mapped_size, block.stream)
        return True

    def _unmap(self, block: Block, segment: ExpandableSegment) -> None:
        """Unmaps all pages that lie within a free block. Releases the addresses of the segment if
        none of its pages is mapped any more.
        """
        pool = block.pool
        start = segment.address + round_up(block.address - segment.address, segment.page)
        size = (block.end - start) // segment.page * segment.page
        if size <= 0:
            return
        segment_stack = block.segment_stack
        pool.free.remove(block)
        if start > block.address:
            pool.add_free(split_front(block, start - block.address))
        if size < block.size:
            after = block
            block = split_front(after, size)
            pool.add_free(after)
        block.mapped = False
        absorb(block, block.prev)
        absorb(block, block.next)
        self._memory.unmap(size)
        self._given_back(pool, size)
        self._tell("segment_unmap", start, size, block.stream, segment_stack)
        if block.is_split:
            pool.unmapped.add(block)
        else:
            self._memory.addresses.release(segment.address, segment.size)

    def _reserved(self, pool: BlockPool, size: int) -> None:
        self._statistics.num_device_alloc += 1
        self._change_reserved(pool, size)

    def _given_back(self, pool: BlockPool, size: int) -> None:
        self._statistics.num_device_free += 1
        self._change_reserved(pool, -size)

    def _change_reserved(self, pool: BlockPool, size: int) -> None:
        self._statistics.reserved_bytes.change(pool.is_small, size)
        if pool.owner:
            pool.owner.reserved_bytes.change(pool.is_small, size)

    def _tell(self, action: str, address: int, size: int, stream: int, reserved: int | None = None) -> None:
        if self.observer:
            self.observer(TraceEntry(action, address, size, stream, self._stacks.of_entry(reserved)))


def _idle_bytes(block: Block | None, enough: int) -> int:
    size = 0
    while size < enough and block is not None and block.is_idle:
        size += block.size
        block = block.next
    return size
