"""Data classes: a race, its accesses, and the addresses of allocations."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.timeline.columns import I64, RaceKind


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory by one record of the log. `stream` is None if the host makes the access. `launch` is the
    GRAPH_LAUNCH record that ran the access, or -1 if it was not captured.
    """

    record: int
    launch: int
    device: int
    stream: int | None


@dataclass(frozen=True, slots=True)
class Race:
    """Two unordered accesses of the same bytes, at least one of them a write. It stands for all such pairs of the same
    kind, from the same stacks on the same streams.

    Attributes:
        kind: The kind of race.
        earlier: The access of the first pair that the program requested first.
        later: The other access of the first pair.
        bytes: The largest overlap of any pair.
        count: The number of pairs.
    """

    kind: RaceKind
    earlier: Access
    later: Access
    bytes: int
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """The addresses that the caching allocator gave to allocations, sorted by `allocation`. Allocations that cannot
    share memory with others may be missing.

    After cudaFree, an address may belong to another allocation. The log has an EMPTY_CACHE record for each cudaFree.
    """

    allocation: I64
    address: I64  # unique among all devices, or all of one device
    size: I64  # bytes
