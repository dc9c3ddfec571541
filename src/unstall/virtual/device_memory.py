"""The device's memory as the driver gives it: how much is left, and at which addresses."""

from __future__ import annotations

from bisect import insort

from unstall.virtual.settings import LARGE_ROUNDING, round_up

FIRST_ADDRESS = 0x7F00_0000_0000


class DeviceMemory:
    """`cudaMalloc` and `cuMemMap`, with no time and no values."""

    def __init__(self, total_bytes: int, other_bytes: int = 0) -> None:
        """`other_bytes`: what the context and other programs hold."""
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes - other_bytes
        self._end = FIRST_ADDRESS
        self._holes: list[tuple[int, int]] = []

    def malloc(self, size: int) -> int | None:
        """The address of `size` bytes, or None when there are not as many."""
        if not self.take(size):
            return None
        return self.reserve_addresses(size)

    def free(self, address: int, size: int) -> None:
        self.free_bytes += size
        self.release_addresses(address, size)

    def take(self, size: int) -> bool:
        """Takes memory without addresses."""
        if size > self.free_bytes:
            return False
        self.free_bytes -= size
        return True

    def give(self, size: int) -> None:
        self.free_bytes += size

    def reserve_addresses(self, size: int) -> int:
        """The lowest range that is free."""
        span = round_up(size, LARGE_ROUNDING)
        for place, (address, hole) in enumerate(self._holes):
            if hole >= span:
                del self._holes[place]
                if hole > span:
                    self._holes.insert(place, (address + span, hole - span))
                return address
        address = self._end
        self._end += span
        return address

    def release_addresses(self, address: int, size: int) -> None:
        insort(self._holes, (address, round_up(size, LARGE_ROUNDING)))
        merged: list[tuple[int, int]] = []
        for start, hole in self._holes:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + hole)
            else:
                merged.append((start, hole))
        self._holes = merged
