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
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError
from unstall.virtual.allocator.segments import TraceEntry
from unstall.virtual.allocator.settings import LARGE_SEGMENT, AllocatorSettings
from unstall.virtual.costs.model import DeviceFacts, OperatorCost


@dataclass(frozen=True, slots=True)
class Refusal:
    """A failed request for memory.

    Attributes:
        record: The number of the record that made the request.
        device: The device of the request.
        allocation: The number of the request in the log, or 0.
        error: The error with torch's message.
    """

    record: int
    device: int
    allocation: int
    error: OutOfMemoryError


class DriverCalls(Protocol):
    """The driver calls that the caching allocator makes. A driver call is inserted right before the log record that
    caused the call.
    """

    def device_malloc(self, device: int) -> None:
        """Inserts a call of cudaMalloc by the host."""

    def device_free(self, device: int) -> None:
        """Inserts a call of cudaFree by the host. This call waits for the device."""

    def record(self, device: int, stream: int) -> int:
        """Inserts a call of cudaEventRecord by the host. Returns the event."""

    def query(self, event: int) -> bool:
        """Inserts a call of cudaEventQuery by the host. Returns whether the event is complete."""

    def synchronize(self, event: int) -> None:
        """Inserts a call of cudaEventSynchronize by the host."""


class Requests:
    """The allocators of all devices, and a log of the changes of allocated memory."""

    def __init__(self, facts: DeviceFacts, settings: str, host: DriverCalls) -> None:
        self._facts = facts
        self._settings = settings
        self._host = host
        self._allocators: dict[int, CachingAllocator] = {}
        self._blocks: dict[int, tuple[CachingAllocator, Block]] = {}
        self._workspaces: dict[tuple[int, int, int, str], Block] = {}
        self._changes: list[tuple[int, int, int, int, int]] = []
        self._placed: list[tuple[int, int, int]] = []
        self.fractions: dict[int, float] = {}
        """By device: the fraction of the device's memory that the program may use."""
        self._most_entries: int | None = None
        self._history: dict[int, deque[TraceEntry]] = {}
        self._refusals: list[Refusal] = []
        self.refused = 0
        """The number of requests whose failure the program learns of only at a later call."""

    def allocator(self, device: int) -> CachingAllocator:
        """Returns a device's allocator. Creates it at the first use."""
        found = self._allocators.get(device)
        if found is None:
            addresses = _Calls(self._host, device)
            events = _Events(self._host, device)
            found = self._allocators[device] = CachingAllocator(
                self._facts.total_bytes,
                self._settings,
                events=events,
                addresses=addresses,
                other_bytes=self._facts.context_bytes,
                device=device,
            )
            self._observe(device)
        return found

    @property
    def devices(self) -> list[int]:
        """The devices that have an allocator."""
        return sorted(self._allocators)

    def record_history(self, most_entries: int | None) -> None:
        """Starts to record the history of each allocator. Stores only the last `most_entries` entries of each history.
        Stops recording if `most_entries` is None.
        """
        self._most_entries = most_entries
        for device in self.devices:
            self._observe(device)

    def history(self, device: int) -> list[TraceEntry]:
        """Returns the recorded history of a device's allocator, oldest entry first."""
        return list(self._history.get(device, ()))

    def take_changes(self) -> np.ndarray:
        """Returns the changes of allocated memory since the last call, as an int64 array of shape (changes, 5).

        The columns are the number of the log record, the device, the bytes allocated (negative if freed), the bytes
        that the device's allocator has reserved after the change, and the address of the block. The address is -1 if
        only the reserved bytes changed.
        """
        taken, self._changes = self._changes, []
        return np.array(taken, np.int64).reshape(-1, 5)

    def take_placed(self) -> list[tuple[int, int, int]]:
        """Returns (allocation number, address, bytes) of each allocation since the last call."""
        taken, self._placed = self._placed, []
        return taken

    def take_refusals(self) -> list[Refusal]:
        """Returns the requests that failed since the last call."""
        taken, self._refusals = self._refusals, []
        return taken

    def malloc(self, record: int, device: int, stream: int, allocation: int, size: int) -> None:
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

    def free(self, record: int, allocation: int) -> None:
        """Frees an allocation. Does nothing if the allocation failed or is unknown."""
        held = self._blocks.pop(allocation, None)
        if held is not None:
            self._give_back(record, *held)

    def use_on_stream(self, allocation: int, stream: int) -> None:
        held = self._blocks.get(allocation)
        if held is not None:
            held[0].record_stream(held[1], stream)

    def operate(
        self, record: int, device: int, stream: int, handle: int, cost: OperatorCost, request: int
    ) -> OperatorCost | None:
        """Allocates an operator's workspaces and temporary memory, and frees the temporary memory.

        Args:
            record: The number of the operator's log record.
            device: The operator's device.
            stream: The operator's stream.
            handle: The calling thread's cuBLAS handle.
            cost: The cost of the operator.
            request: The number of the request in the log, or 0.

        Returns:
            The cost of what runs: `cost`, or its fallback if the device has no room. None if the operator fails. A
            library that falls back hides the failure of its request, so only an operator that fails is in
            `take_refusals`.
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
        return cost

    def _pass(self, record: int, allocator: CachingAllocator, stream: int, sizes: tuple[int, ...]) -> None:
        """Allocates and frees the temporary memory of one pass of an operator."""
        taken: list[Block] = []
        try:
            for size in filter(None, sizes):
                taken.append(self._taken(record, allocator, stream, size))  # noqa: PERF401 - kept if the next one fails
        finally:
            for block in reversed(taken):
                self._give_back(record, allocator, block)

    def has_workspaces(self, device: int, stream: int, handle: int, cost: OperatorCost) -> bool:
        """Returns whether all workspaces of an operator are already allocated."""
        return all((device, stream, handle, name) in self._workspaces for name, _ in cost.workspaces)

    def foresee(self, device: int, stream: int, sizes: Iterable[int], is_done: Callable[[int], bool]) -> DriverCall:
        """Predicts the driver call of each request. Each prediction assumes that no other request comes first.
        Returns the driver call of the first request that needs a driver call. Returns "" if no request needs one.
        """
        allocator = self.allocator(device)
        calls = (allocator.foresee(size, stream, is_done) for size in sizes)
        return next((call for call in calls if call), "")

    def clear_workspaces(self, record: int) -> None:
        """Frees all workspaces. Operators allocate them again when they need them."""
        while self._workspaces:
            (device, *_), block = self._workspaces.popitem()
            self._give_back(record, self.allocator(device), block)

    def empty_cache(self, record: int, device: int) -> None:
        """Empties the cache of one device, or of all devices if `device` is -1."""
        for number in self.devices if device < 0 else [device]:
            allocator = self.allocator(number)
            before = allocator.memory_reserved()
            allocator.empty_cache()
            if allocator.memory_reserved() != before:
                self._changed(record, number, 0, -1, allocator)

    def pool_begin(self, device: int, pool: PoolId, captures: Callable[[int], bool]) -> None:
        self.allocator(device).capture_begin(pool, captures)

    def pool_end(self, device: int, pool: PoolId) -> None:
        self.allocator(device).capture_end(pool)

    def pool_release(self, device: int, pool: PoolId) -> None:
        self.allocator(device).release_pool(pool)

    def headroom(self, device: int, kept_bytes: int) -> int:
        """Returns how many bytes are certain to be available for new requests, even if no memory is freed. `kept_bytes`
        more stay available for workspaces. Each request counts with the size of the segment that the default settings
        would reserve for it (`growth`).
        """
        allocator = self.allocator(device)
        free, total = allocator.mem_get_info()
        fraction = self.fractions.get(device, allocator.settings.per_process_memory_fraction)
        left = min(free, max(int(fraction * total) - allocator.memory_reserved(), 0))
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
    """Returns by how many bytes requests of these sizes increase the reserved memory at most, with default settings."""
    return sum(_DEFAULT.segment_size(_DEFAULT.block_size(size)) for size in sizes)


def worst_growth(settings: AllocatorSettings) -> int:
    """Returns the largest possible ratio between the memory that a request reserves with these settings and the memory
    that the same request reserves with the default settings.
    """
    times = -(-settings.large_segment // LARGE_SEGMENT)  # for blocks of 1 to 10 MiB
    if max(settings.roundup_power2_divisions) > 1:
        times *= 2  # at most 1.5 times as much
    return times * (2 if settings.expandable_segments else 1)  # whole pages of 20 MiB for 10 MiB and more


_APART = 1 << 42
"""The distance between the addresses of consecutive devices."""


class _Calls(TopDownAddresses):
    """The address space of a device. The host calls the driver to reserve or release a range of addresses."""

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
    """The CUDA events that the allocator of a device records on the device's streams."""

    def __init__(self, host: DriverCalls, device: int) -> None:
        self._host = host
        self._device = device
        self.query = host.query
        self.synchronize = host.synchronize

    def record(self, stream: int) -> int:
        return self._host.record(self._device, stream)
