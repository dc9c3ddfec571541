"""The device's memory as the driver manages it: the number of free bytes, and the used addresses."""

from __future__ import annotations

from unstall.virtual.allocator.addresses import AddressSpace


class DeviceMemory:
    """Models `cudaMalloc`, `cuMemMap` and their inverses.

    The modelled calls take no time, and the memory has no content.

    Sizes are in bytes.
    """

    def __init__(self, total_bytes: int, other_bytes: int, addresses: AddressSpace) -> None:
        """`other_bytes` is the memory that the CUDA context and other programs use."""
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes - other_bytes
        self.addresses = addresses

    def malloc(self, size: int) -> int | None:
        """Allocates `size` bytes. Returns their address, or None if there is not enough free memory."""
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
