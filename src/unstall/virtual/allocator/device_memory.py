"""The memory of a device as the driver manages it: how many bytes are free, and which addresses are taken."""

from __future__ import annotations

from unstall.virtual.allocator.addresses import AddressSpace


class DeviceMemory:
    """Models `cudaMalloc`, `cuMemMap` and what undoes them. Sizes are in bytes. The calls take no
    time, and the memory has no content.
    """

    def __init__(self, total_bytes: int, other_bytes: int, addresses: AddressSpace) -> None:
        """`other_bytes` is what the CUDA context and other programs take of the memory."""
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes - other_bytes
        self.addresses = addresses

    def malloc(self, size: int) -> int | None:
        """Allocates `size` bytes, and returns their address; None if so much memory is not free."""
        return self.addresses.reserve(size) if self.map(size) else None

    def free(self, address: int, size: int) -> None:
        """Frees the `size` bytes at `address`, which `malloc` returned."""
        self.unmap(size)
        self.addresses.release(address, size)

    def map(self, size: int) -> bool:
        """Takes `size` bytes for addresses that are reserved already. Returns False if so much memory is not free."""
        if size > self.free_bytes:
            return False
        self.free_bytes -= size
        return True

    def unmap(self, size: int) -> None:
        """Gives `size` bytes back. Their addresses stay reserved."""
        self.free_bytes += size
