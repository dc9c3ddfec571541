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
        allocation: The number of the allocation, or 0 for an operator's temporary memory.
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
        """The number of requests that failed although the program had continued as if they had succeeded."""

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
        block = self._take(record, allocator, stream, size, allocation)
        if block is not None:
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

    def operate(self, record: int, device: int, stream: int, handle: int, cost: OperatorCost) -> None:
        """Allocates an operator's workspaces and temporary memory. `handle` is the calling thread's cuBLAS handle."""
        allocator = self.allocator(device)
        for name, size in cost.workspaces:
            key = (device, stream, handle, name)
            if key not in self._workspaces:
                kept = self._take(record, allocator, stream, size)
                if kept is not None:
                    self._workspaces[key] = kept
        for sizes in cost.temporaries:
            taken = [self._take(record, allocator, stream, size) for size in sizes]
            for block in reversed(taken):
                if block is not None:
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

    def headroom(self, device: int) -> int:
        """Returns how many bytes are certain to be available for new requests, even if no memory is freed. The shim
        counts each request with the size of the segment that the default settings would reserve for the request. The
        returned number is for requests that are counted in this way.
        """
        allocator = self.allocator(device)
        free, total = allocator.mem_get_info()
        fraction = self.fractions.get(device, allocator.settings.per_process_memory_fraction)
        left = min(free, max(int(fraction * total) - allocator.memory_reserved(), 0))
        return left // worst_growth(allocator.settings)

    def _observe(self, device: int) -> None:
        if self._most_entries is None:
            self._history.pop(device, None)
            self._allocators[device].observe(None)
        else:
            entries = deque(self._history.get(device, ()), maxlen=self._most_entries)
            self._history[device] = entries
            self._allocators[device].observe(entries.append)

    def _take(
        self, record: int, allocator: CachingAllocator, stream: int, size: int, allocation: int = 0
    ) -> Block | None:
        if size <= 0:
            return None
        try:
            block = allocator.malloc(size, stream)
        except OutOfMemoryError as error:
            error.__traceback__ = None  # its frames lead to those of the program, whose tensors would stay
            self._refusals.append(Refusal(record, allocator.device, allocation, error))
            return None
        self._changed(record, allocator.device, block.size, block.address, allocator)
        return block

    def _give_back(self, record: int, allocator: CachingAllocator, block: Block) -> None:
        size, address = block.size, block.address
        allocator.free(block)
        self._changed(record, allocator.device, -size, address, allocator)

    def _changed(self, record: int, device: int, size: int, address: int, allocator: CachingAllocator) -> None:
        self._changes.append((record, device, size, allocator.memory_reserved(), address))


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
