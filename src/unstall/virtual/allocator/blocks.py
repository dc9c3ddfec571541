"""Blocks of device memory, how they lie beside each other, and the pools of free ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from unstall.virtual.allocator.statistics import PoolStat

PoolId = tuple[int, int]
"""What torch calls a MempoolId: (counter of torch.cuda.graph_pool_handle, counter of CUDAGraph)."""
_POOL_BITS = 32


def pool_number(pool: PoolId) -> int:
    """The number that the log has for a pool."""
    return pool[0] << _POOL_BITS | pool[1]


def pool_of_number(number: int) -> PoolId:
    """The pool that has this number."""
    return number >> _POOL_BITS, number & (1 << _POOL_BITS) - 1


@dataclass(frozen=True)
class ExpandableSegment:
    """A range of addresses that device memory is mapped into, page by page."""

    address: int
    size: int
    page: int


@dataclass(slots=True, eq=False)
class Block:
    """A range of one segment. `prev` and `next` are its neighbours there."""

    address: int
    size: int
    stream: int
    pool: BlockPool
    segment: ExpandableSegment | None = None
    requested_size: int = 0
    allocated: bool = False
    mapped: bool = True
    """False where an expandable segment has addresses and no memory."""
    prev: Block | None = None
    next: Block | None = None
    stream_uses: dict[int, None] = field(default_factory=dict)
    """The other streams it was used on since it was allocated, in that order."""
    event_count: int = 0
    """Events that must be done before it is free."""
    searches_when_freed: int = 0

    @property
    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None

    @property
    def is_idle(self) -> bool:
        """Nobody holds it, and no stream may still use it."""
        return not (self.allocated or self.event_count or self.stream_uses)

    @property
    def end(self) -> int:
        return self.address + self.size


def split_front(block: Block, size: int) -> Block:
    """The first `size` bytes of a block as a block of its own; `block` keeps the rest."""
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
    """Merges a neighbour into `block`, which is in no pool, if it is idle: its bytes, else 0."""
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
    """Blocks by stream, and on each stream in the order of a key that no two share."""

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
        """The stream's first block from `key` on."""
        keys, blocks = self._of(stream)
        place = bisect_left(keys, key)
        return blocks[place] if place < len(blocks) else None

    def from_(self, stream: int, *key: int) -> Iterator[Block]:
        """The stream's blocks from `key` on; do not add or remove meanwhile."""
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
    """Free blocks of one kind of request: small or large, of all the program or of one graph's private pool."""

    def __init__(self, is_small: bool, owner: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.owner = owner
        self.free = OrderedBlocks(_size_then_address)
        self.unmapped = OrderedBlocks(_address)
        self.searches = 0
        """Counted only while garbage is collected: a block's age is the searches since it was freed."""

    def add_free(self, block: Block) -> None:
        block.searches_when_freed = self.searches
        self.free.add(block)

    def age(self, block: Block) -> int:
        return self.searches - block.searches_when_freed


class Pools:
    """The small and the large pool."""

    def __init__(self, owner: PrivatePool | None = None) -> None:
        self.small = BlockPool(is_small=True, owner=owner)
        self.large = BlockPool(is_small=False, owner=owner)

    def __iter__(self) -> Iterator[BlockPool]:
        yield self.small
        yield self.large


class PrivatePool:
    """What graphs allocate from while they are captured; it gives memory back once none of them lives."""

    def __init__(self, pool_id: PoolId) -> None:
        self.pool_id = pool_id
        self.pools = Pools(owner=self)
        self.graphs = 0
        self.reserved_bytes = PoolStat()
