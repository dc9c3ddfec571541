"""Data classes: a race, its accesses, and the addresses of allocations."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.timeline.columns import I64, RaceKind


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory by one record of the log. `stream` is None if the host makes the access. `launch` is the number
    of the GRAPH_LAUNCH record that ran the access, or -1 if the access was not captured.
    """

    record: int
    launch: int
    device: int
    stream: int | None


@dataclass(frozen=True, slots=True)
class Race:
    """A pair of unordered accesses to the same bytes. At least one of the two accesses is a write. A `Race` represents
    all pairs of the same kind, from the same stacks and on the same streams.

    Attributes:
        kind: The kind of race.
        earlier: Of the two accesses of the first pair, the access that the program requested first.
        later: Of the two accesses of the first pair, the access that the program requested second.
        bytes: The largest number of bytes that the two accesses of one pair share.
        count: The number of pairs.
    """

    kind: RaceKind
    earlier: Access
    later: Access
    bytes: int
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """The addresses that the caching allocator gave to allocations, sorted by `allocation`. An allocation may be
    missing if its memory is never reused by another allocation.

    After cudaFree, an address may belong to another allocation. The log has an EMPTY_CACHE record for each cudaFree.
    """

    allocation: I64
    address: I64  # unique among all devices, or all of one device
    size: I64  # bytes
