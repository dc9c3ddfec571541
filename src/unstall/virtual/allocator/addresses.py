"""The addresses of segments. What matters is only their order: of free blocks of one size, the
allocator takes the one with the lowest address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from unstall.virtual.allocator.settings import MIB, round_up

CHUNK = 32 * MIB
"""The driver reserves addresses in multiples of this size (seen on an H200, CUDA 13.0)."""
TOP = 0x7F00_0000_0000
_AT_FIRST = (22 * MIB, 2 * MIB)
"""How much is left of the chunks with the driver's own memory, once there is a context."""
_WITH_CUDNN = (414 * MIB, 2 * MIB, 6 * MIB)
"""The same for the chunks with cuDNN's modules: 422 MiB in two processes, and 424 MiB in other parts in a third."""


class AddressSpace(Protocol):
    """Hands out ranges of device addresses, and takes them back."""

    def reserve(self, size: int) -> int:
        """Reserves a range of `size` bytes, and returns its first address."""

    def release(self, address: int, size: int) -> None:
        """Takes a reserved range back."""


@dataclass
class _Chunk:
    """Reserved addresses.

    Attributes:
        start: The first.
        end: The one after the last.
        gaps: The free ranges in them, as `(start, end)`.
        stays: Whether it is kept if all of it is free.
    """

    start: int
    end: int
    gaps: list[tuple[int, int]] = field(default_factory=list)
    stays: bool = False


class TopDownAddresses:
    """Hands out addresses as the driver does, in chunks whose size is a multiple of `CHUNK`.

    The newest chunk that has room serves a request, in its smallest gap that is large enough. If none has room, there
    is a new chunk: in the highest hole between chunks that is larger than it, or else below all. That is where Linux
    puts it. A chunk is given up once all of it is free, unless the driver has something else there.

    All 879 addresses that `cudaMalloc` returned in five processes on an H200 (CUDA 13.0) follow from these rules. They
    were of 2 to 508 MiB each, in a random order, and about half of them were freed in between.
    """

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []  # the oldest first
        self._leave(_AT_FIRST)

    def load_cudnn(self) -> None:
        """Adds what is left of the chunks that the driver reserves for cuDNN's modules."""
        self._leave(_WITH_CUDNN)

    def reserve(self, size: int) -> int:
        for chunk in reversed(self._chunks):
            fitting = [gap for gap in chunk.gaps if gap[1] - gap[0] >= size]
            if fitting:
                start, end = min(fitting, key=lambda gap: (gap[1] - gap[0], gap[0]))
                chunk.gaps.remove((start, end))
                break
        else:
            chunk = self._new_chunk(round_up(size, CHUNK))
            start, end = chunk.start, chunk.end
        if start + size < end:
            chunk.gaps.append((start + size, end))
        return start

    def release(self, address: int, size: int) -> None:
        chunk = next(each for each in self._chunks if each.start <= address < each.end)
        start, end = address, address + size
        for gap in [gap for gap in chunk.gaps if gap[1] == start or gap[0] == end]:
            chunk.gaps.remove(gap)
            start, end = min(start, gap[0]), max(end, gap[1])
        if (start, end) == (chunk.start, chunk.end) and not chunk.stays:
            self._chunks.remove(chunk)
        else:
            chunk.gaps.append((start, end))

    def _leave(self, sizes: Iterable[int]) -> None:
        for size in sizes:
            chunk = self._new_chunk(round_up(size, CHUNK))
            chunk.stays = True
            chunk.gaps.append((chunk.start, chunk.start + size))

    def _new_chunk(self, size: int) -> _Chunk:
        end = TOP
        for other in sorted(self._chunks, key=lambda each: -each.start):
            if end - other.end > size:
                break
            end = other.start
        chunk = _Chunk(end - size, end)
        self._chunks.append(chunk)
        return chunk
