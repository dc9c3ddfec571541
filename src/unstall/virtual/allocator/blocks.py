"""Blocks of device memory, their neighbours, and the pools of free blocks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from unstall.virtual.allocator.statistics import PoolStat

PoolId = tuple[int, int]
"""The id of a private pool of CUDA graphs, as torch's MempoolId: a pair of the counters of
torch.cuda.CUDAGraph and torch.cuda.graph_pool_handle. One of them is 0.
"""
_POOL_BITS = 32


def pool_number(pool: PoolId) -> int:
    """Returns the id of a private pool as one number. The log of the shim has it in this form."""
    return pool[0] << _POOL_BITS | pool[1]


def pool_of_number(number: int) -> PoolId:
    """Returns the id of a private pool from the number that `pool_number` returned for it."""
    return number >> _POOL_BITS, number & (1 << _POOL_BITS) - 1


@dataclass(frozen=True)
class ExpandableSegment:
    """A range of addresses that is reserved as a whole. Memory is mapped into it page by page.

    Attributes:
        address: The first address.
        size: The size of the range in bytes.
        page: The size of a page in bytes.
    """

    address: int
    size: int
    page: int


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment: a range of addresses that is allocated or free.

    Attributes:
        address: The first address.
        size: The size in bytes.
        stream: The stream on which the block was allocated.
        pool: The pool in which the block lies while it is free.
        segment: The expandable segment that the block is a part of; None for a part of another
            segment.
        requested_size: How many bytes the program asked for.
        allocated: Whether the block is allocated.
        mapped: Whether there is memory at the addresses. False only for a part of an expandable
            segment.
        prev: The block right before this one in the segment; None if it is the first.
        next: The block right after this one in the segment; None if it is the last.
        stream_uses: As keys, the other streams that used the block since it was allocated, in the
            order of their first use.
        event_count: How many CUDA events must be done before the block is free.
        searches_when_freed: How often the pool had been searched for a free block, at the time when
            this block was freed.
        stack: The number of the Python stack at which the block was allocated, if the memory
            history keeps it; else -1.
        segment_stack: The same of the segment, in its first block.
    """

    address: int
    size: int
    stream: int
    pool: BlockPool
    segment: ExpandableSegment | None = None
    requested_size: int = 0
    allocated: bool = False
    mapped: bool = True
    prev: Block | None = None
    next: Block | None = None
    stream_uses: dict[int, None] = field(default_factory=dict)
    event_count: int = 0
    searches_when_freed: int = 0
    stack: int = -1
    segment_stack: int = -1

    @property
    def is_split(self) -> bool:
        """Whether the block is only a part of its segment."""
        return self.prev is not None or self.next is not None

    @property
    def is_idle(self) -> bool:
        """Whether the block is not allocated, and no stream uses it any more."""
        return not (self.allocated or self.event_count or self.stream_uses)

    @property
    def end(self) -> int:
        return self.address + self.size


def split_front(block: Block, size: int) -> Block:
    """Makes a new block of the first `size` bytes of `block`, and returns it. `block` becomes the rest."""
    front = Block(block.address, size, block.stream, block.pool, block.segment, mapped=block.mapped)
    front.segment_stack, block.segment_stack = block.segment_stack, -1
    link(block.prev, front)
    link(front, block)
    block.address += size
    block.size -= size
    return front


def link(before: Block | None, after: Block | None) -> None:
    """Makes two blocks neighbours. Either may be None: the other one then has no neighbour there."""
    if before:
        before.next = after
    if after:
        after.prev = before


def absorb(block: Block, neighbour: Block | None) -> int:
    """Merges `neighbour` into `block`, if `neighbour` is idle, and if both blocks are mapped or
    neither is. Returns by how many bytes `block` grew: 0 if nothing was merged, as for None.

    `block` must not lie in a pool.
    """
    if neighbour is None or not neighbour.is_idle or neighbour.mapped != block.mapped:
        return 0
    (block.pool.free if neighbour.mapped else block.pool.unmapped).remove(neighbour)
    if neighbour is block.prev:
        block.address, block.segment_stack = neighbour.address, neighbour.segment_stack
        link(neighbour.prev, block)
    else:
        link(block, neighbour.next)
    block.size += neighbour.size
    return neighbour.size


class OrderedBlocks:
    """Blocks by stream. The blocks of each stream are sorted by a key, which `key` returns for a
    block. No two of them may have the same key.
    """

    def __init__(self, key: Callable[[Block], tuple[int, ...]]) -> None:
        self._key = key
        self._by_stream: dict[int, tuple[list[tuple[int, ...]], list[Block]]] = {}

    def __iter__(self) -> Iterator[Block]:
        return chain.from_iterable(blocks for _, (_, blocks) in sorted(self._by_stream.items()))

    def add(self, block: Block) -> None:
        keys, blocks = self._of(block.stream)
        key = self._key(block)
        place = bisect_left(keys, key)
        keys.insert(place, key)
        blocks.insert(place, block)

    def remove(self, block: Block) -> None:
        keys, blocks = self._by_stream[block.stream]
        place = bisect_left(keys, self._key(block))
        del keys[place], blocks[place]

    def below(self, stream: int, *key: int) -> list[Block]:
        """Returns the blocks of the stream whose keys are less than `key`, in ascending order."""
        keys, blocks = self._of(stream)
        return blocks[: bisect_left(keys, key)]

    def first(self, stream: int, *key: int) -> Block | None:
        """Returns the first block of the stream whose key is at least `key`; None if there is none."""
        keys, blocks = self._of(stream)
        place = bisect_left(keys, key)
        return blocks[place] if place < len(blocks) else None

    def last(self, stream: int) -> Block | None:
        """Returns the block of the stream with the largest key; None if the stream has no blocks."""
        _, blocks = self._of(stream)
        return blocks[-1] if blocks else None

    def from_(self, stream: int, *key: int) -> Iterator[Block]:
        """Yields the blocks of the stream whose keys are at least `key`, in ascending order. No
        block may be added or removed meanwhile.
        """
        keys, blocks = self._of(stream)
        for place in range(bisect_left(keys, key), len(blocks)):
            yield blocks[place]

    def _of(self, stream: int) -> tuple[list[tuple[int, ...]], list[Block]]:
        found = self._by_stream.get(stream)
        if found is None:
            found = self._by_stream[stream] = ([], [])
        return found


def _size_then_address(block: Block) -> tuple[int, int]:
    return block.size, block.address


def _address(block: Block) -> tuple[int]:
    return (block.address,)


class BlockPool:
    """The free blocks for small requests, or those for large requests.

    Attributes:
        is_small: Whether it is the pool for small requests.
        owner: The private pool of CUDA graphs to which these blocks belong; None for those that are
            not private.
        free: The free blocks, by size and address.
        unmapped: The parts of expandable segments without memory, by address.
        searches: How often a free block was searched for. Counted only while garbage collection is
            on.
    """

    def __init__(self, is_small: bool, owner: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.owner = owner
        self.free = OrderedBlocks(_size_then_address)
        self.unmapped = OrderedBlocks(_address)
        self.searches = 0

    def add_free(self, block: Block) -> None:
        """Puts a free block into the pool."""
        block.searches_when_freed = self.searches
        self.free.add(block)

    def age(self, block: Block) -> int:
        """Returns how often a free block was searched for since `block` was freed."""
        return self.searches - block.searches_when_freed


class Pools:
    """Two pools of free blocks: one for small requests, one for large requests."""

    def __init__(self, owner: PrivatePool | None = None) -> None:
        self.small = BlockPool(is_small=True, owner=owner)
        self.large = BlockPool(is_small=False, owner=owner)

    def __iter__(self) -> Iterator[BlockPool]:
        yield self.small
        yield self.large


class PrivatePool:
    """The memory that CUDA graphs allocate during their capture. When all graphs that need it are
    freed, it can be given back to the driver.
    """

    def __init__(self, pool_id: PoolId) -> None:
        self.pool_id = pool_id
        self.pools = Pools(owner=self)
        self.graphs = 0
        self.reserved_bytes = PoolStat()
