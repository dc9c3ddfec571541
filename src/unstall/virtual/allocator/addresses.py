"""The addresses of segments. Only the order of addresses affects the results.

If several free blocks have the same size, the allocator uses the block at the lowest address.
"""

from __future__ import annotations

from bisect import insort
from typing import Protocol

from unstall.virtual.allocator.settings import MIB, round_up

CHUNK = 32 * MIB
"""The driver reserves addresses in multiples of this size (seen in torch's memory history on an H200, CUDA 13.0)."""
TOP = 0x7F00_0000_0000


class AddressSpace(Protocol):
    """Reserves and releases ranges of device addresses."""

    def reserve(self, size: int) -> int:
        """Reserves `size` bytes. Returns the first address."""

    def release(self, address: int, size: int) -> None:
        """Releases a reserved range."""


class TopDownAddresses:
    """Reserves the lowest free range that is large enough.

    If no range is large enough, adds a chunk of addresses below all earlier chunks, as Linux does.

    In torch's memory history on an H200, each new chunk was below the previous chunks, and released ranges were
    refilled from the lowest address up. The driver's complete rule is not known.
    """

    def __init__(self) -> None:
        self._bottom = TOP
        self._gaps: list[tuple[int, int]] = []

    def reserve(self, size: int) -> int:
        gap = next((gap for gap in self._gaps if gap[1] - gap[0] >= size), None)
        if gap is None:
            end, self._bottom = self._bottom, self._bottom - round_up(size, CHUNK)
            gap = self._bottom, end
        else:
            self._gaps.remove(gap)
        start, end = gap
        if start + size < end:
            insort(self._gaps, (start + size, end))
        return start

    def release(self, address: int, size: int) -> None:
        start, end = address, address + size
        for gap in [gap for gap in self._gaps if gap[1] == start or gap[0] == end]:
            self._gaps.remove(gap)
            start, end = min(start, gap[0]), max(end, gap[1])
        insort(self._gaps, (start, end))
