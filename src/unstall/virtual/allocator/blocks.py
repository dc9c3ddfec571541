"""Blocks of device memory, their neighbours, and the pools of free blocks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from unstall.virtual.allocator.statistics import PoolStat

PoolId = tuple[int, int]
"""torch's MempoolId: a pair (counter of torch.cuda.graph_pool_handle, counter of CUDAGraph)."""
_POOL_BITS = 32


def pool_number(pool: PoolId) -> int:
    """Encodes the id of a memory pool as one number, in the form of the shim's log."""
    return pool[0] << _POOL_BITS | pool[1]


def pool_of_number(number: int) -> PoolId:
    """Decodes the id of a memory pool from one number. This is the inverse of `pool_number`."""
    return number >> _POOL_BITS, number & (1 << _POOL_BITS) - 1


@dataclass(frozen=True)
class ExpandableSegment:
    """A reserved range of addresses. Device memory is mapped into it page by page."""

    address: int
    size: int
    page: int


@dataclass(slots=True, eq=False)
class Block:
    """A range of addresses in one segment. `prev` and `next` are the neighbouring blocks in the segment."""

    address: int
    size: int
    stream: int
    pool: BlockPool
    segment: ExpandableSegment | None = None
    requested_size: int = 0
    allocated: bool = False
    mapped: bool = True
    """Whether the block has mapped memory. False only for a part of an expandable segment that is not mapped."""
    prev: Block | None = None
    next: Block | None = None
    stream_uses: dict[int, None] = field(default_factory=dict)
    """The streams, except `stream`, that used the block since it was allocated, in order of first use."""
    event_count: int = 0
    """The number of CUDA events that must be done before the block is free."""
    searches_when_freed: int = 0

    @property
    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None

    @property
    def is_idle(self) -> bool:
        """Whether the block is free and no stream still uses it."""
        return not (self.allocated or self.event_count or self.stream_uses)

    @property
    def end(self) -> int:
        return self.address + self.size


def split_front(block: Block, size: int) -> Block:
    """Splits off the first `size` bytes of a block. Returns these bytes as a new block. `block` becomes the rest."""
    front = Block(block.address, size, block.stream, block.pool, block.segment, mapped=block.mapped)
    link(block.prev, front)
    link(front, block)
    block.address += size
    block.size -= size
    return front


def link(before: Block | None, after: Block | None) -> None:
    if before:
        before.next = after
    if after:
        after.prev = before


def absorb(block: Block, neighbour: Block | None) -> int:
    """Merges an idle `neighbour` into `block`. Merges nothing if only one of the two blocks is mapped.

    Returns the size of the merged neighbour, or 0 if nothing is merged. `block` must not be in a pool.
    """
    if neighbour is None or not neighbour.is_idle or neighbour.mapped != block.mapped:
        return 0
    (block.pool.free if neighbour.mapped else block.pool.unmapped).remove(neighbour)
    if neighbour is block.prev:
        block.address = neighbour.address
        link(neighbour.prev, block)
    else:
        link(block, neighbour.next)
    block.size += neighbour.size
    return neighbour.size


class OrderedBlocks:
    """Blocks, grouped by stream.

    The blocks of a stream are sorted by a key. No two blocks of a stream have the same key.
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
        keys, blocks = self._of(stream)
        return blocks[: bisect_left(keys, key)]

    def first(self, stream: int, *key: int) -> Block | None:
        """Returns the stream's first block whose key is at least `key`, or None if there is no such block."""
        keys, blocks = self._of(stream)
        place = bisect_left(keys, key)
        return blocks[place] if place < len(blocks) else None

    def last(self, stream: int) -> Block | None:
        """Returns the stream's block with the largest key, or None if the stream has no blocks."""
        _, blocks = self._of(stream)
        return blocks[-1] if blocks else None

    def from_(self, stream: int, *key: int) -> Iterator[Block]:
        """Yields the stream's blocks whose keys are at least `key`. Do not add or remove blocks while iterating."""
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
    """A pool of free blocks, either for small or for large requests.

    If the blocks belong to a private pool of CUDA graphs, `owner` is the private pool. Otherwise `owner` is None.
    """

    def __init__(self, is_small: bool, owner: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.owner = owner
        self.free = OrderedBlocks(_size_then_address)
        self.unmapped = OrderedBlocks(_address)
        self.searches = 0
        """The number of searches for a free block. Searches are counted only if garbage collection is on.

        The age of a block is the number of searches since the block was freed.
        """

    def add_free(self, block: Block) -> None:
        block.searches_when_freed = self.searches
        self.free.add(block)

    def age(self, block: Block) -> int:
        return self.searches - block.searches_when_freed


class Pools:
    """A pair of pools: one pool for small requests, and one pool for large requests."""

    def __init__(self, owner: PrivatePool | None = None) -> None:
        self.small = BlockPool(is_small=True, owner=owner)
        self.large = BlockPool(is_small=False, owner=owner)

    def __iter__(self) -> Iterator[BlockPool]:
        yield self.small
        yield self.large


class PrivatePool:
    """The pool from which CUDA graphs allocate during their capture.

    When all graphs of the pool are freed, the pool's memory can be released.
    """

    def __init__(self, pool_id: PoolId) -> None:
        self.pool_id = pool_id
        self.pools = Pools(owner=self)
        self.graphs = 0
        self.reserved_bytes = PoolStat()
