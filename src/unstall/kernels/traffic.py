"""Counts a kernel's accesses of memory, and the 32-byte sectors that its warps ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.kernels.accesses import Accesses, Kind, Place, Space

SECTOR_BYTES = 32
"""The least that a GPU moves between its caches and its memory (CUDA C++ best practices guide, "Coalesced access")."""
_WARP = 32


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of accesses.

    Attributes:
        total: By all threads.
        most: By the thread that makes the most of them.
    """

    total: int
    most: int


@dataclass(frozen=True, slots=True)
class Counts:
    """The accesses to one kind of memory. An atomic update counts once, as atomic."""

    space: Literal["shared", "global"]
    reads: Amount
    writes: Amount
    atomics: Amount


@dataclass(frozen=True, slots=True)
class LineTraffic:
    """The global memory that one line asks for.

    Attributes:
        place: The line.
        requests: How many requests for memory the warps make at this line. One request has the n-th read (or the n-th
            write) of each of a warp's 32 threads at this line.
        sectors: How many 32-byte sectors each request touches, added up over all requests.
        least_sectors: What `sectors` would be if the elements of each request were adjacent in memory.
    """

    place: Place
    requests: int
    sectors: int
    least_sectors: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """The memory that a kernel uses.

    Attributes:
        counts: The accesses to global and to shared memory.
        lines: The requests of each line for global memory, in the order of the lines.
        requested_bytes: The bytes of all requested sectors. A sector counts once for each request. The L2 cache moves
            these bytes.
        distinct_bytes: The bytes of all different sectors that are read, plus those that are written. The device's
            memory moves these bytes if the cache keeps each sector until its last use.
    """

    counts: tuple[Counts, Counts]
    lines: tuple[LineTraffic, ...]
    requested_bytes: int
    distinct_bytes: int


def count(accesses: Accesses) -> Traffic:
    """Counts the traffic of a launch."""
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
    """Returns a number for each access. Accesses with the same number are one request of a warp."""
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
