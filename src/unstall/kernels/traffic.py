"""Counts a kernel's accesses to memory, and the 32-byte sectors that its warps request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.kernels.accesses import Accesses, Kind, Place, Space

SECTOR_BYTES = 32
"""The size of a sector in bytes. A GPU moves whole sectors between its caches and its memory (CUDA C++ best practices
guide, "Coalesced access")."""
_WARP = 32


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of accesses.

    Attributes:
        total: The number of accesses that all threads of the launch make together.
        most: The number of accesses of a single thread: the thread that makes the most of these accesses.
    """

    total: int
    most: int


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of accesses to one kind of memory. An atomic update counts once in `atomics`, and neither as a read
    nor as a write.

    Attributes:
        space: The kind of memory: "shared" or "global".
        reads: The number of reads.
        writes: The number of writes.
        atomics: The number of atomic updates.
    """

    space: Literal["shared", "global"]
    reads: Amount
    writes: Amount
    atomics: Amount


@dataclass(frozen=True, slots=True)
class LineTraffic:
    """The requests for global memory that one line of source code makes.

    Attributes:
        place: The line of source code.
        requests: The number of requests that the warps make at this line. The first read at this line by each of a
            warp's 32 threads together form one request. The second reads form another request, and so on. Writes and
            atomic updates form requests in the same way.
        sectors: The number of 32-byte sectors that a request touches, added up over all requests.
        least_sectors: The value that `sectors` would have if the elements of each request were adjacent in memory.
    """

    place: Place
    requests: int
    sectors: int
    least_sectors: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """The memory traffic of one kernel launch.

    Attributes:
        counts: The numbers of accesses to global memory and to shared memory, in this order.
        lines: The requests of each source line for global memory, sorted by file and line.
        requested_bytes: The number of bytes that the L2 cache moves: 32 bytes for each sector of each request. If
            several requests touch one sector, the sector counts several times.
        distinct_bytes: The number of bytes that the device's memory moves if the cache keeps each sector until the last
            use of the sector. It is 32 bytes for each sector that the kernel reads, plus 32 bytes for each sector that
            the kernel writes. A sector that is read several times counts once.
    """

    counts: tuple[Counts, Counts]
    lines: tuple[LineTraffic, ...]
    requested_bytes: int
    distinct_bytes: int


def count(accesses: Accesses) -> Traffic:
    """Returns the memory traffic of a kernel launch. `accesses` are all memory accesses of the launch."""
    rows = accesses.of(Space.GLOBAL)
    counts = _counts(rows, "global"), _counts(accesses.of(Space.SHARED), "shared")
    if not len(rows):
        return Traffic(counts, (), 0, 0)
    starts = np.array([each.address for each in accesses.memories], np.int64)
    offset = rows.address - starts[rows.memory]  # CUDA aligns what it allocates to 256 bytes
    request = _requests(rows)
    sectors = np.unique(np.stack([rows.place, request, rows.memory, offset // SECTOR_BYTES]), axis=1)
    elements = np.unique(np.stack([rows.place, request, rows.memory, offset, rows.size]), axis=1)
    lines = []
    for place in np.unique(rows.place):
        of_line = elements[:, elements[0] == place]
        _, at = np.unique(of_line[1:3], axis=1, return_inverse=True)
        needed = -(-np.bincount(at.ravel(), of_line[4]) // SECTOR_BYTES)
        requests = len(np.unique(request[rows.place == place]))
        touched = int((sectors[0] == place).sum())
        lines.append(LineTraffic(accesses.places[int(place)], requests, touched, int(needed.sum())))
    distinct = np.unique(np.stack([rows.memory, offset // SECTOR_BYTES, rows.kind == Kind.READ]), axis=1)
    return Traffic(
        counts,
        tuple(sorted(lines, key=lambda each: (each.place.file, each.place.line))),
        sectors.shape[1] * SECTOR_BYTES,
        distinct.shape[1] * SECTOR_BYTES,
    )


def _requests(rows: Accesses) -> np.ndarray:
    """Returns an array with a number for each access. Accesses with the same number belong to one request of a warp."""
    key = rows.of_block, rows.thread, rows.place, rows.kind
    order = np.lexsort(key)  # stable, so accesses of a thread stay in their order
    new = np.ones(len(rows), bool)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in key], axis=0)
    begin = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - begin
    asked = np.stack([rows.of_block, rows.thread // _WARP, rows.place, rows.kind, nth])
    number: np.ndarray = np.unique(asked, axis=1, return_inverse=True)[1].ravel()
    return number


def _counts(rows: Accesses, space: Literal["shared", "global"]) -> Counts:
    by_kind = []
    thread = rows.of_block * int(np.prod(rows.block)) + rows.thread
    for kind in Kind:
        _, of_each = np.unique(thread[rows.kind == kind], return_counts=True)
        by_kind.append(Amount(int(of_each.sum()), int(of_each.max(initial=0))))
    return Counts(space, *by_kind)
