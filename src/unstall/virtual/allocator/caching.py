"""A model of PyTorch's CUDA caching allocator that is exact to the byte.

It works out which block each request gets, and what memory_stats() says after it. It does what
c10/cuda/CUDACachingAllocator.cpp of torch 2.11 does, and was tested against an H200. It allocates
no device memory: addresses are only numbers, and the caller says whether a stream has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from unstall.virtual.allocator.addresses import AddressSpace, TopDownAddresses
from unstall.virtual.allocator.best_fit import best_fit, should_split
from unstall.virtual.allocator.blocks import Block, BlockPool, PoolId, Pools, PrivatePool, absorb, split_front
from unstall.virtual.allocator.device_memory import DeviceMemory
from unstall.virtual.allocator.kept_stacks import KeptStacks
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError, out_of_memory_message
from unstall.virtual.allocator.segments import Observer, Segments, TraceEntry
from unstall.virtual.allocator.settings import SMALL_SIZE, UNLIMITED, AllocatorSettings
from unstall.virtual.allocator.snapshot import segments_of
from unstall.virtual.allocator.statistics import Statistics
from unstall.virtual.allocator.stream_events import DoneAtOnce, PendingFrees, StreamEvents

LARGEST_REQUEST = 1 << 60
"""The largest number of bytes that a program may ask for at once."""
DriverCall = Literal["", "malloc", "free"]
"""What a request for memory needs of the driver: nothing (""), new memory ("malloc"), or that
cached memory is given back first ("free").
"""


class CachingAllocator:
    """The caching allocator of one device. Methods have the names of torch's. Sizes are in bytes."""

    def __init__(
        self,
        total_bytes: int,
        settings: str = "",
        *,
        events: StreamEvents | None = None,
        observer: Observer | None = None,
        stacks: KeptStacks | None = None,
        addresses: AddressSpace | None = None,
        other_bytes: int = 0,
        device: int = 0,
    ) -> None:
        """Makes the allocator of a device on which nothing is allocated yet.

        Args:
            total_bytes: The size of the device's memory.
            settings: The allocator's settings, in the form of PYTORCH_ALLOC_CONF.
            events: The CUDA events by which the allocator learns whether other streams have
                finished with a block. None for events that are done at once.
            observer: A function that is called with each new entry of torch's memory history.
            stacks: The stacks that the memory history keeps. None for none.
            addresses: Hands out the addresses of segments. None for addresses as on Linux.
            other_bytes: How much memory the CUDA context and other programs take.
            device: The device's index.

        Raises:
            ValueError: torch would reject the settings.
        """
        self.settings = AllocatorSettings.parse(settings)
        self.device = device
        self._memory = DeviceMemory(total_bytes, other_bytes, addresses or TopDownAddresses())
        self._statistics = Statistics()
        self._max_split_size_at_start = self.settings.max_split_size
        self._stacks = stacks or KeptStacks()
        self._segments = Segments(self._memory, self._statistics, observer, self._stacks)
        self._observer = observer
        self._pending = PendingFrees(events or DoneAtOnce(), self._free_now)
        self._pools = Pools()
        self._active: dict[Block, None] = {}
        self._private_pools: dict[PoolId, PrivatePool] = {}
        self._captures: dict[PoolId, Callable[[int], bool]] = {}
        self.memory_fraction = self.settings.per_process_memory_fraction
        self._allowed_bytes: int | None = None
        if self.memory_fraction < 1:
            self.set_per_process_memory_fraction(self.memory_fraction)

    def malloc(self, size: int, stream: int) -> Block:
        """Allocates a block.

        Args:
            size: How many bytes the program asks for, at least 1.
            stream: The stream that will use the block.

        Returns:
            The block. It may be larger than `size`, as torch rounds sizes up.

        Raises:
            OutOfMemoryError: There is not enough memory, even after the cache was emptied.
            ValueError: `size` is less than 1.
        """
        if size <= 0:
            raise ValueError(f"a block has at least one byte, not {size}")
        if size > LARGEST_REQUEST:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory.")
        if not self._captures and self._pending:
            self.process_events()
        block_size = self.settings.block_size(size)
        pool = self._pool_for(block_size, stream)
        block = self._cached(pool, stream, block_size) or self._new(pool, stream, block_size)
        if block is None:
            raise self._out_of_memory(block_size, stream)
        return self._hand_out(block, block_size, size)

    def free(self, block: Block) -> None:
        """Frees a block. If other streams used it, it can be used again only when these have
        finished with it.

        Args:
            block: A block that `malloc` returned.

        Raises:
            ValueError: The block is not allocated.
        """
        if not block.allocated:
            raise ValueError(f"invalid device pointer: {block.address:#x}")
        statistics, is_small = self._statistics, block.pool.is_small
        block.allocated = False
        statistics.let_go(is_small, block.size)
        if self._observer:
            self._tell("free_requested", block, block.stack)
        if block.size >= self.settings.max_split_size:
            statistics.oversize_allocations.change(-1)
        if block.stream_uses:
            self._pending.add(block, capturing=bool(self._captures))
        else:
            self._free_now(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Notes that `stream` uses the block, too. After the block is freed, it is not used again
        before the work of `stream` is done.
        """
        if stream != block.stream:
            self._pending.use(block, stream, capturing=bool(self._captures))

    def process_events(self) -> None:
        """Makes each freed block available again if all streams have finished with it. Every
        `malloc` outside of captures calls this.
        """
        self._pending.process()

    def empty_cache(self) -> None:
        """Waits until other streams have finished with all freed blocks, then gives all segments
        that are free back to the driver.
        """
        if self._captures:
            raise RuntimeError("the cache cannot be emptied while a graph is captured")
        self._release_cached()

    def foresee(self, size: int, stream: int, is_done: Callable[[int], bool]) -> DriverCall:
        """Returns what `malloc` would need of the driver for a request. The request is not made.

        Args:
            size: As for `malloc`.
            stream: As for `malloc`.
            is_done: A function that returns whether an event is done, without a call of
                cudaEventQuery.

        Returns:
            "" if the cache can serve the request. "malloc" if it needs cudaMalloc, or pages that
            are mapped; with expandable segments, it may need neither after all. "free" if cached
            memory has to be given back first.
        """
        block_size = self.settings.block_size(size)
        pool = self._pool_for(block_size, stream)
        if best_fit(pool, stream, block_size, self.settings) is not None:
            return ""
        if not self._captures and self._pending.would_free(pool, stream, block_size, is_done):
            return ""
        room = self._memory.free_bytes
        if self._allowed_bytes is not None:
            room = min(room, self._allowed_bytes - self._segments.reserved_bytes)
        collects = self._collects_garbage and self._excess() > 0 and bool(self._collectable())
        return "free" if collects or self.settings.segment_size(block_size) > room else "malloc"

    def largest_cached(self, stream: int) -> tuple[int, int]:
        """Returns `(small, large)`: how many bytes the stream can certainly get without a call of
        the driver, by a small request and by a large one.

        They are the sizes of the stream's largest free blocks in the two pools. Both are 0 during a
        capture, and if `settings.splits_any_block` is False, because any request may then need the
        driver.
        """
        if self._captures or not self.settings.splits_any_block:
            return 0, 0
        small, large = (pool.free.last(stream) for pool in self._pools)
        return small.size if small else 0, large.size if large else 0

    def waits_to_empty(self) -> bool:
        """Returns whether `empty_cache`, if it were called now, would wait for a stream or give
        memory back to the driver.
        """
        if self._captures:
            return False
        pools = [pool for pool in self._all_pools() if pool.owner is None or pool.owner.graphs == 0]
        return bool(self._pending) or any(block.segment or not block.is_split for pool in pools for block in pool.free)

    def observe(self, observer: Observer | None) -> None:
        """Replaces the function that is called with each new entry of torch's memory history; None for no function."""
        self._observer = self._segments.observer = observer

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        """Limits what the allocator may reserve to this fraction of the device's memory, from 0 to 1."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"invalid fraction: {fraction}. Please set within [0, 1].")
        self.memory_fraction = fraction
        self._allowed_bytes = int(fraction * self._memory.total_bytes)

    def capture_begin(self, pool_id: PoolId, captures: Callable[[int], bool]) -> None:
        """Begins to capture a CUDA graph that allocates from the private pool `pool_id`.

        Until `capture_end`, a request gets its memory from this pool if `captures` returns True for
        the stream of the request. The graph needs the pool until `release_pool` is called.
        """
        if pool_id in self._captures:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        pool = self._private_pools.setdefault(pool_id, PrivatePool(pool_id))
        pool.graphs += 1
        self._captures[pool_id] = captures

    def capture_end(self, pool_id: PoolId) -> None:
        """Ends the capture that allocates from the private pool `pool_id`."""
        if pool_id not in self._captures:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        del self._captures[pool_id]

    def release_pool(self, pool_id: PoolId) -> None:
        """Notes that a CUDA graph no longer needs the private pool `pool_id`. When no graph needs
        the pool any more, its free memory can be given back to the driver.
        """
        pool = self._private_pools.get(pool_id)
        if pool is None or pool.graphs == 0:
            raise ValueError(f"no graph holds the private pool {pool_id}")
        pool.graphs -= 1

    def memory_stats(self) -> dict[str, int]:
        """Returns all statistics by their names in torch.cuda.memory_stats(), sorted by name."""
        by_pool = {
            f"reserved_bytes_by_private_pools.{pool_id[0]}_{pool_id[1]}.{kind}.{name}": value
            for pool_id, pool in self._private_pools.items()
            for kind, stat in pool.reserved_bytes.stats()
            for name, value in stat.items()
        }
        limit = self._max_split_size_at_start
        own = {"max_split_size": -1 if limit == UNLIMITED else limit, "num_oom_rejections": 0}
        return dict(sorted((self._statistics.flat() | own | by_pool).items()))

    def reset_peak_memory_stats(self) -> None:
        self._statistics.reset_peak()

    def reset_accumulated_memory_stats(self) -> None:
        self._statistics.reset_accumulated()

    def memory_allocated(self) -> int:
        return self._statistics.allocated_bytes.all.current

    def max_memory_allocated(self) -> int:
        return self._statistics.allocated_bytes.all.peak

    def memory_reserved(self) -> int:
        return self._statistics.reserved_bytes.all.current

    def max_memory_reserved(self) -> int:
        return self._statistics.reserved_bytes.all.peak

    def mem_get_info(self) -> tuple[int, int]:
        """Returns `(free, total)`: the free bytes and all bytes of the device's memory, as the driver reports them."""
        return self._memory.free_bytes, self._memory.total_bytes

    def memory_snapshot(self) -> list[dict[str, object]]:
        """Returns the segments and their blocks as torch.cuda.memory_snapshot() does, sorted by
        address. Stacks are numbers.
        """
        blocks = [*self._active, *(block for pool in self._all_pools() for block in pool.free)]
        return segments_of(blocks, self.device)

    def _all_pools(self) -> list[BlockPool]:
        return [*self._pools, *(pool for private in self._private_pools.values() for pool in private.pools)]

    def _pool_for(self, block_size: int, stream: int) -> BlockPool:
        capturing = (self._private_pools[pool_id].pools for pool_id, on in self._captures.items() if on(stream))
        pools = next(capturing, self._pools)
        return pools.small if block_size <= SMALL_SIZE else pools.large

    @property
    def _collects_garbage(self) -> bool:
        return self._allowed_bytes is not None and self.settings.garbage_collection_threshold > 0

    def _cached(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Takes the free block that fits best out of its pool, and returns it. Returns None if none fits."""
        if self._collects_garbage:
            pool.searches += 1
        block = best_fit(pool, stream, size, self.settings)
        if block is not None:
            pool.free.remove(block)
        return block

    def _new(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Returns a block of new memory from the driver, or None if there is not enough.

        If need be, cached memory is given back first: segments that were not used for long, then
        large segments, then the whole cache.
        """
        if self._collects_garbage:
            self._collect_garbage()
        block = self._reserve(pool, stream, size)
        if block is None and self._release_oversize(pool, stream, size):
            block = self._reserve(pool, stream, size)
        if block is None and not self._captures:
            self._release_cached()
            self._statistics.num_alloc_retries += 1
            block = self._reserve(pool, stream, size)
        return block

    def _reserve(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        segment_size = self.settings.segment_size(size)
        if self._allowed_bytes is not None and self._segments.reserved_bytes + segment_size > self._allowed_bytes:
            return None
        if self.settings.expandable_segments:
            return self._segments.expand(pool, stream, size)
        return self._segments.malloc(pool, stream, segment_size, self.settings.max_split_size)

    def _hand_out(self, block: Block, size: int, requested_size: int) -> Block:
        statistics, is_small = self._statistics, block.pool.is_small
        was_split = block.is_split
        counts_splits = block.segment is None
        if should_split(block, size, self.settings):
            rest, block = block, split_front(block, size)
            block.pool.add_free(rest)
            if counts_splits and was_split:
                statistics.inactive_split_bytes.change(is_small, -size)
            elif counts_splits:
                statistics.inactive_split_bytes.change(is_small, rest.size)
                statistics.inactive_split.change(is_small, 1)
        elif counts_splits and was_split:
            statistics.inactive_split_bytes.change(is_small, -block.size)
            statistics.inactive_split.change(is_small, -1)
        block.allocated = True
        block.requested_size, block.stack = requested_size, self._stacks.of_block()
        self._active[block] = None
        if self._observer:
            self._tell("alloc", block, None)
        statistics.handed_out(is_small, block.size, requested_size)
        if block.size >= self.settings.max_split_size:
            statistics.oversize_allocations.change(1)
        return block

    def _free_now(self, block: Block) -> None:
        """Merges a block that no stream uses with its free neighbours, and puts the merged block into its pool."""
        statistics, is_small = self._statistics, block.pool.is_small
        if self._observer:
            self._tell("free_completed", block, block.stack)
        block.stack = -1
        statistics.freed(is_small, block.size, block.requested_size)
        before, after = absorb(block, block.prev), absorb(block, block.next)
        del self._active[block]
        block.pool.add_free(block)
        if block.segment is None and (before or after or block.is_split):
            statistics.inactive_split.change(is_small, block.is_split - bool(before) - bool(after))
            statistics.inactive_split_bytes.change(is_small, block.is_split * block.size - before - after)

    def _release_cached(self) -> None:
        self._statistics.num_sync_all_streams += 1
        self._pending.wait_for_all()
        self._release_free(self._pools)
        for private in [private for private in self._private_pools.values() if private.graphs == 0]:
            self._release_free(private.pools)
            if private.reserved_bytes.all.current == 0:
                del self._private_pools[private.pool_id]

    def _release_free(self, pools: Pools) -> None:
        self._segments.release_free(pools.large, self.settings.max_split_size)
        self._segments.release_free(pools.small, self.settings.max_split_size)

    def _release_oversize(self, pool: BlockPool, stream: int, size: int) -> bool:
        """Gives cached segments back to the driver that are too large to be split. Returns whether
        that was enough for a request of `size` bytes.

        If one segment is large enough by itself, only this one is given back. Otherwise, the
        largest ones are, until they are enough together.
        """
        limit = self.settings.max_split_size
        if limit == UNLIMITED or self.settings.expandable_segments:
            return False
        wanted = max(size, limit)
        large_enough = next(pool.free.from_(stream, wanted), None)
        if large_enough is not None:
            self._segments.free(large_enough, limit)
            return True
        released = 0
        for block in reversed(pool.free.below(stream, wanted)):
            if released >= wanted or block.size < limit:
                break
            released += block.size
            self._segments.free(block, limit)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """If too much memory is reserved, gives cached large segments back to the driver that were
        not used for long.
        """
        excess, cached, pool = self._excess(), self._collectable(), self._pools.large
        while excess > 0 and cached:
            mean_age = sum(map(pool.age, cached)) / len(cached)
            old = [block for block in cached if pool.age(block) >= mean_age]
            cached = [block for block in cached if pool.age(block) < mean_age]
            for block in old:
                excess -= block.size
                self._segments.free(block, self.settings.max_split_size)

    def _excess(self) -> int:
        """Returns by how many bytes the reserved memory exceeds the setting
        garbage_collection_threshold. Negative if it does not.
        """
        assert self._allowed_bytes is not None
        return self._segments.reserved_bytes - int(self.settings.garbage_collection_threshold * self._allowed_bytes)

    def _collectable(self) -> list[Block]:
        return [block for block in self._pools.large.free if not block.is_split and block.segment is None]

    def _out_of_memory(self, block_size: int, stream: int) -> OutOfMemoryError:
        self._statistics.num_ooms += 1
        if self._observer:
            stack = self._stacks.of_entry()
            self._observer(TraceEntry("oom", self._memory.free_bytes, block_size, stream, stack))
        private = [pool for owner in self._private_pools.values() for pool in owner.pools]
        return OutOfMemoryError(
            out_of_memory_message(
                device=self.device,
                tried=self.settings.segment_size(block_size),
                total=self._memory.total_bytes,
                free=self._memory.free_bytes,
                allowed=self._allowed_bytes,
                allocated=self.memory_allocated(),
                reserved=self.memory_reserved(),
                in_private_pools=sum(block.size for pool in private for block in pool.free),
            )
        )

    def _tell(self, action: str, block: Block, allocated: int | None) -> None:
        assert self._observer is not None
        stack = self._stacks.of_entry(allocated)
        self._observer(TraceEntry(action, block.address, block.requested_size, block.stream, stack))
