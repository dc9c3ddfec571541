"""The device's memory as the driver gives it: how much is left, and at which addresses."""

from __future__ import annotations

from unstall.virtual.allocator.addresses import AddressSpace


class DeviceMemory:
    """`cudaMalloc`, `cuMemMap` and their opposites, with no time and no values. Sizes are bytes."""

    def __init__(self, total_bytes: int, other_bytes: int, addresses: AddressSpace) -> None:
        """`other_bytes`: what the context and other programs hold."""
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes - other_bytes
        self.addresses = addresses

    def malloc(self, size: int) -> int | None:
        """The address of `size` bytes, or None when there are not as many."""
        return self.addresses.reserve(size) if self.map(size) else None

    def free(self, address: int, size: int) -> None:
        self.unmap(size)
        self.addresses.release(address, size)

    def map(self, size: int) -> bool:
        """Takes memory for addresses that were reserved before; False when there is not as much."""
        if size > self.free_bytes:
            return False
        self.free_bytes -= size
        return True

    def unmap(self, size: int) -> None:
        self.free_bytes += size
