"""Where the driver puts segments. Only the order of addresses tells: of free blocks of one size the lowest is taken."""

from __future__ import annotations

from bisect import insort
from typing import Protocol

from unstall.virtual.settings import MIB, round_up

CHUNK = 32 * MIB
"""The driver reserves addresses in multiples of this (seen in torch's memory history on an H200, CUDA 13.0)."""
TOP = 0x7F00_0000_0000


class AddressSpace(Protocol):
    """Hands out ranges of addresses."""

    def reserve(self, size: int) -> int:
        """The first address of `size` bytes that nobody else has."""

    def release(self, address: int, size: int) -> None:
        """Takes a range back."""


class TopDownAddresses:
    """As Linux maps memory for the driver: each new chunk lies below the last, in the highest gap that is wide enough;
    what is smaller than a chunk goes into the lowest gap that one left."""

    def __init__(self) -> None:
        self._bottom = TOP
        self._gaps: list[tuple[int, int]] = []

    def reserve(self, size: int) -> int:
        wide = [gap for gap in self._gaps if gap[1] - gap[0] >= size]
        if not wide:
            end, self._bottom = self._bottom, self._bottom - round_up(size, CHUNK)
            wide = [(self._bottom, end)]
            self._gaps.insert(0, wide[0])
        start, end = wide[-1] if size >= CHUNK else wide[0]
        self._gaps.remove((start, end))
        if start + size < end:
            insort(self._gaps, (start + size, end))
        return start

    def release(self, address: int, size: int) -> None:
        start, end = address, address + size
        before = [gap for gap in self._gaps if gap[1] == start]
        after = [gap for gap in self._gaps if gap[0] == end]
        for gap in before + after:
            self._gaps.remove(gap)
            start, end = min(start, gap[0]), max(end, gap[1])
        insort(self._gaps, (start, end))
