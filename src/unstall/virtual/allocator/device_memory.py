"""The device's memory as the driver manages it: how many bytes are free, and which addresses are used."""

from __future__ import annotations

from unstall.virtual.allocator.addresses import AddressSpace


class DeviceMemory:
    """Models `cudaMalloc`, `cuMemMap` and their inverses. These calls take no time and store no values. Sizes are in
    bytes.
    """

    def __init__(self, total_bytes: int, other_bytes: int, addresses: AddressSpace) -> None:
        """`other_bytes` is the memory of the context and of other programs."""
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes - other_bytes
        self.addresses = addresses

    def malloc(self, size: int) -> int | None:
        """Returns the address of `size` bytes, or None if there is not enough free memory."""
        return self.addresses.reserve(size) if self.map(size) else None

    def free(self, address: int, size: int) -> None:
        self.unmap(size)
        self.addresses.release(address, size)

    def map(self, size: int) -> bool:
        """Maps `size` bytes to reserved addresses. Returns False if there is not enough free memory."""
        if size > self.free_bytes:
            return False
        self.free_bytes -= size
        return True

    def unmap(self, size: int) -> None:
        self.free_bytes += size
