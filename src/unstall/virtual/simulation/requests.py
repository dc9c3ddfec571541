"""Serves requests for device memory. As in a real program, each device has a caching allocator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unstall.virtual.allocator.addresses import TopDownAddresses
from unstall.virtual.allocator.blocks import Block, PoolId
from unstall.virtual.allocator.caching import CachingAllocator, DriverCall
from unstall.virtual.allocator.kept_stacks import Context, KeptStacks
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError
from unstall.virtual.allocator.segments import TraceEntry
from unstall.virtual.allocator.settings import LARGE_SEGMENT, AllocatorSettings
from unstall.virtual.costs.model import DeviceFacts, OperatorCost
from unstall.virtual.simulation.data_numbers import DataNumbers


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request for device memory that failed.

    Attributes:
        record: The number of the record, in the shim's log, that made the request.
        device: The device.
        allocation: The number that the log gave to the request; 0 if it gave none.
        error: The error, with torch's message.
    """

    record: int
    device: int
    allocation: int
    error: OutOfMemoryError


class DriverCalls(Protocol):
    """Inserts the driver calls that the caching allocators make into the simulation: right before
    the record of the log that makes them necessary.
    """

    def device_malloc(self, device: int) -> None:
        """Inserts a call of cudaMalloc."""

    def device_free(self, device: int) -> None:
        """Inserts a call of cudaFree. It waits until the device has no work left."""

    def record(self, device: int, stream: int) -> int:
        """Inserts a call of cudaEventRecord on a stream. Returns the number of the event."""

    def query(self, event: int) -> bool:
        """Inserts a call of cudaEventQuery. Returns whether the event is complete."""

    def synchronize(self, event: int) -> None:
        """Inserts a call of cudaEventSynchronize. It waits until the event is complete."""


class Requests:
    """Serves the requests for memory on all devices, and keeps a list of the changes of allocated
    memory.

    Attributes:
        refused: The number of failed requests whose errors the program gets only at a later call.
        stacks: The Python stack of the record that is being handled, as far as the memory history
            keeps it.
    """

    def __init__(self, facts: DeviceFacts, settings: str, host: DriverCalls, data: DataNumbers) -> None:
        """Begins without allocators.

        Args:
            facts: The device.
            settings: The settings of the caching allocators, in the format of PYTORCH_ALLOC_CONF.
            host: Inserts the driver calls that they make.
            data: Is told where allocations are.
        """
        self._facts = facts
        self._settings = settings
        self._host = host
        self._data = data
        self._allocators: dict[int, CachingAllocator] = {}
        self._addresses: dict[int, TopDownAddresses] = {}
        self._with_cudnn: set[int] = set()
        self._blocks: dict[int, tuple[CachingAllocator, Block]] = {}
        self._workspaces: dict[tuple[int, int, int, str], Block] = {}
        self._changes: list[tuple[int, int, int, int, int]] = []
        self._placed: list[tuple[int, int, int]] = []
        self._most_entries: int | None = None
        self._history: dict[int, deque[TraceEntry]] = {}
        self._refusals: list[Refusal] = []
        self.refused = 0
        self.stacks = KeptStacks()

    def allocator(self, device: int) -> CachingAllocator:
        """Returns the caching allocator of `device`. Creates it if the device has none yet."""
        found = self._allocators.get(device)
        if found is None:
            addresses = self._addresses[device] = _Calls(self._host, device)
            events = _Events(self._host, device)
            found = self._allocators[device] = CachingAllocator(
                self._facts.total_bytes,
                self._settings,
                events=events,
                stacks=self.stacks,
                addresses=addresses,
                other_bytes=self._facts.context_bytes,
                device=device,
            )
            self._observe(device)
        return found

    def load_cudnn(self, device: int) -> None:
        """Lets cuDNN be loaded on a device. Does nothing if it is there already."""
        if device not in self._with_cudnn:
            self._with_cudnn.add(device)
            self.allocator(device)
            self._addresses[device].load_cudnn()

    @property
    def devices(self) -> list[int]:
        """The numbers of the devices that have an allocator, in ascending order."""
        return sorted(self._allocators)

    def record_history(self, most_entries: int | None, context: Context = Context.ALL) -> None:
        """Starts to record what each allocator does, as torch.cuda.memory._record_memory_history
        does.

        Args:
            most_entries: How many entries are kept for each device: the last ones. None for no
                entries.
            context: Which stacks are kept.
        """
        self._most_entries, self.stacks.context = most_entries, context
        for device in self.devices:
            self._observe(device)

    def history(self, device: int) -> list[TraceEntry]:
        """Returns what was recorded about the allocator of `device` (see `record_history`). The
        oldest entry is first.
        """
        return list(self._history.get(device, ()))

    def take_changes(self) -> np.ndarray:
        """Returns the changes of allocated memory since the last call of this method.

        Returns:
            An int64 array of shape (changes, 5). The columns are: the number of the record in the
            shim's log; the device; the bytes allocated, negative if they were freed; the bytes that
            the allocator of the device has reserved after the change; and the address of the block,
            -1 if only the reserved bytes changed.
        """
        taken, self._changes = self._changes, []
        return np.array(taken, np.int64).reshape(-1, 5)

    def take_placed(self) -> list[tuple[int, int, int]]:
        """Returns the allocations since the last call of this method, as tuples `(number, address,
        size)`. `number` is the one that the shim's log gives to the allocation, and `size` is the
        size of its block in bytes.
        """
        taken, self._placed = self._placed, []
        return taken

    def take_refusals(self) -> list[Refusal]:
        """Returns the requests that failed since the last call of this method."""
        taken, self._refusals = self._refusals, []
        return taken

    def malloc(self, record: int, device: int, stream: int, allocation: int, size: int) -> None:
        """Serves a request for memory. If it fails, adds it to the refusals.

        Args:
            record: The number of the record in the shim's log.
            device: The device.
            stream: The stream for which the memory is requested.
            allocation: The number that the log gives to the allocation.
            size: The size of the request in bytes.
        """
        allocator = self.allocator(device)
        if size <= 0:
            return
        try:
            block = self._taken(record, allocator, stream, size)
        except OutOfMemoryError as error:
            self._refuse(record, allocator, allocation, error)
            return
        self._blocks[allocation] = (allocator, block)
        self._placed.append((allocation, block.address, block.size))
        self._data.place(allocation, block.address)

    def free(self, record: int, allocation: int) -> None:
        """Frees the memory of an allocation. Does nothing if the request for it failed, or if the
        allocation is unknown.

        Args:
            record: The number of the record in the shim's log.
            allocation: The number that the log gave to the allocation.
        """
        held = self._blocks.pop(allocation, None)
        if held is not None:
            self._give_back(record, *held)
            self._data.free(allocation)

    def use_on_stream(self, allocation: int, stream: int) -> None:
        """Notes that another stream, `stream`, uses the memory of an allocation, as
        Tensor.record_stream does.

        Args:
            allocation: The number that the shim's log gave to the allocation.
            stream: The other stream.
        """
        held = self._blocks.get(allocation)
        if held is not None:
            held[0].record_stream(held[1], stream)

    def operate(
        self, record: int, device: int, stream: int, handle: int, cost: OperatorCost, request: int
    ) -> OperatorCost | None:
        """Allocates the workspaces and the temporary memory of an operator, and frees the temporary
        memory again.

        Args:
            record: The number of the operator's record in the shim's log.
            device: The device.
            stream: The stream.
            handle: The number of the calling thread's cuBLAS handle.
            cost: The cost of the operator.
            request: The number that the log gives to the request; 0 if it gives none.

        Returns:
            The cost of what runs: `cost`, or its fallback if there is no room for the memory of
            `cost`. None if the operator fails. Only then is the request in `take_refusals`: a
            library that has a fallback hides that its request failed.
        """
        allocator = self.allocator(device)
        try:
            for name, size in cost.workspaces:
                key = (device, stream, handle, name)
                if key not in self._workspaces:
                    self._workspaces[key] = self._taken(record, allocator, stream, size)
            for sizes in cost.temporaries:
                self._pass(record, allocator, stream, sizes)
        except OutOfMemoryError as error:
            if cost.fallback is not None:
                return self.operate(record, device, stream, handle, cost.fallback, request)
            self._refuse(record, allocator, request, error)
            return None
        if cost.empties_cache:
            self.empty_cache(record, device)
        return cost

    def _pass(self, record: int, allocator: CachingAllocator, stream: int, sizes: tuple[int, ...]) -> None:
        """Allocates the temporary memory of one pass of an operator, and frees it again."""
        taken: list[Block] = []
        try:
            for size in filter(None, sizes):
                taken.append(self._taken(record, allocator, stream, size))  # noqa: PERF401 - kept if the next one fails
        finally:
            for block in reversed(taken):
                self._give_back(record, allocator, block)

    def has_workspaces(self, device: int, stream: int, handle: int, cost: OperatorCost) -> bool:
        """Returns whether all workspaces of an operator are allocated already.

        Args:
            device: The device.
            stream: The stream.
            handle: The number of the calling thread's cuBLAS handle.
            cost: The cost of the operator.
        """
        return all((device, stream, handle, name) in self._workspaces for name, _ in cost.workspaces)

    def foresee(self, device: int, stream: int, sizes: Iterable[int], is_done: Callable[[int], bool]) -> DriverCall:
        """Returns which driver call the next requests for memory would need first; "" if none of
        them would need one.

        Each request is looked at as if it were the only one.

        Args:
            device: The device.
            stream: The stream for which the memory would be requested.
            sizes: The sizes of the requests in bytes.
            is_done: A function that returns whether the CUDA event with a given number is complete.
        """
        allocator = self.allocator(device)
        calls = (allocator.foresee(size, stream, is_done) for size in sizes)
        return next((call for call in calls if call), "")

    def clear_workspaces(self, record: int) -> None:
        """Frees all workspaces of cuBLAS. `record` is the number of the record, in the shim's log,
        at which this happens.
        """
        while self._workspaces:
            (device, *_), block = self._workspaces.popitem()
            self._give_back(record, self.allocator(device), block)

    def empty_cache(self, record: int, device: int) -> None:
        """Gives the cached memory of a device back to the driver.

        Args:
            record: The number of the record in the shim's log.
            device: The device; a negative number stands for all devices.
        """
        for number in self.devices if device < 0 else [device]:
            allocator = self.allocator(number)
            before = allocator.memory_reserved()
            allocator.empty_cache()
            if allocator.memory_reserved() != before:
                self._changed(record, number, 0, -1, allocator)

    def pool_begin(self, device: int, pool: PoolId, captures: Callable[[int], bool]) -> None:
        """Lets the memory of the streams that are being captured come from the private pool `pool`,
        from now on.

        Args:
            device: The device.
            pool: The id of the pool.
            captures: A function that returns whether a stream is being captured.
        """
        self.allocator(device).capture_begin(pool, captures)

    def pool_end(self, device: int, pool: PoolId) -> None:
        """Ends what `pool_begin` began."""
        self.allocator(device).capture_end(pool)

    def pool_release(self, device: int, pool: PoolId) -> None:
        """Notes that a CUDA graph that used the private pool `pool` was freed."""
        self.allocator(device).release_pool(pool)

    def headroom(self, device: int, kept_bytes: int) -> int:
        """Returns how many bytes new requests may take in total and still be sure to be served,
        even if no memory is freed. A request counts with what `growth` returns for it.

        Args:
            device: The device.
            kept_bytes: How many more bytes must stay available, for workspaces.
        """
        allocator = self.allocator(device)
        free, total = allocator.mem_get_info()
        left = min(free, max(int(allocator.memory_fraction * total) - allocator.memory_reserved(), 0))
        return left // worst_growth(allocator.settings) - kept_bytes

    def _observe(self, device: int) -> None:
        if self._most_entries is None:
            self._history.pop(device, None)
            self._allocators[device].observe(None)
        else:
            entries = deque(self._history.get(device, ()), maxlen=self._most_entries)
            self._history[device] = entries
            self._allocators[device].observe(entries.append)

    def _taken(self, record: int, allocator: CachingAllocator, stream: int, size: int) -> Block:
        block = allocator.malloc(size, stream)
        self._changed(record, allocator.device, block.size, block.address, allocator)
        return block

    def _refuse(self, record: int, allocator: CachingAllocator, request: int, error: OutOfMemoryError) -> None:
        error.__traceback__ = None  # its frames lead to those of the program, whose tensors would stay
        self._refusals.append(Refusal(record, allocator.device, request, error))

    def _give_back(self, record: int, allocator: CachingAllocator, block: Block) -> None:
        size, address = block.size, block.address
        allocator.free(block)
        self._changed(record, allocator.device, -size, address, allocator)

    def _changed(self, record: int, device: int, size: int, address: int, allocator: CachingAllocator) -> None:
        self._changes.append((record, device, size, allocator.memory_reserved(), address))


_DEFAULT = AllocatorSettings.parse("")


def growth(sizes: Iterable[int]) -> int:
    """Returns by how many bytes requests of the given sizes raise the reserved memory at most, with
    the allocator's default settings. `sizes` are in bytes.
    """
    return sum(_DEFAULT.segment_size(_DEFAULT.block_size(size)) for size in sizes)


def worst_growth(settings: AllocatorSettings) -> int:
    """Returns a factor for the requests for memory with the given settings. A request may raise the
    reserved memory by at most this factor times what it may raise it by with the default settings.
    """
    times = -(-settings.large_segment // LARGE_SEGMENT)  # for blocks of 1 to 10 MiB
    if max(settings.roundup_power2_divisions) > 1:
        times *= 2  # at most 1.5 times as much
    return times * (2 if settings.expandable_segments else 1)  # whole pages of 20 MiB for 10 MiB and more


_APART = 1 << 42
"""The distance between the addresses of two devices with consecutive numbers."""


class _Calls(TopDownAddresses):
    """The addresses of a device. To reserve or release a range of them, the host calls the driver."""

    def __init__(self, host: DriverCalls, device: int) -> None:
        super().__init__()
        self._host = host
        self._device = device

    def reserve(self, size: int) -> int:
        self._host.device_malloc(self._device)
        return super().reserve(size) - self._device * _APART

    def release(self, address: int, size: int) -> None:
        self._host.device_free(self._device)
        super().release(address + self._device * _APART, size)


class _Events:
    """The CUDA events that the allocator of a device records on the streams of that device."""

    def __init__(self, host: DriverCalls, device: int) -> None:
        self._host = host
        self._device = device
        self.query = host.query
        self.synchronize = host.synchronize

    def record(self, stream: int) -> int:
        return self._host.record(self._device, stream)
