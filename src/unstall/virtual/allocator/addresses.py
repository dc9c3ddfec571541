"""The addresses of segments. What matters is only their order: of free blocks of one size, the
allocator takes the one with the lowest address.
"""

from __future__ import annotations

from bisect import insort
from typing import Protocol

from unstall.virtual.allocator.settings import MIB, round_up

CHUNK = 32 * MIB
"""The driver reserves addresses in multiples of this size (seen in torch's memory history on an H200, CUDA 13.0)."""
TOP = 0x7F00_0000_0000


class AddressSpace(Protocol):
    """Hands out ranges of device addresses, and takes them back."""

    def reserve(self, size: int) -> int:
        """Reserves a range of `size` bytes, and returns its first address."""

    def release(self, address: int, size: int) -> None:
        """Takes a reserved range back."""


class TopDownAddresses:
    """Hands out the lowest free range of addresses that is large enough. If there is none, it adds
    a range below all earlier ones, as Linux does.

    That is what torch's memory history on an H200 shows: each new range was below the earlier ones,
    and released ranges were filled again from the lowest address up. The complete rule of the
    driver is not known.
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
