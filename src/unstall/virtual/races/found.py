"""What the race finder returns: races and their accesses. Also what it is told: the addresses of allocations."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.timeline.columns import I64, RaceKind


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory by one record of the log (the shim's record of something that the program
    asked of its GPU).

    Attributes:
        record: The number of the record in the log.
        launch: If the use was captured in a CUDA graph, the number of the record that launched the
            graph; else -1.
        device: The device's index.
        stream: The stream on which the use runs; None if the host itself uses the memory.
    """

    record: int
    launch: int
    device: int
    stream: int | None


@dataclass(frozen=True, slots=True)
class Race:
    """A pair of accesses to the same bytes whose order nothing ensures. At least one of them
    writes.

    It stands for all pairs of the same kind, on the same streams, from the same call stacks.

    Attributes:
        kind: The kind of race.
        earlier: The access of the first pair that the program asked for first.
        later: The other access of the first pair.
        bytes: The largest number of bytes that the two accesses of a pair share.
        count: The number of pairs.
    """

    kind: RaceKind
    earlier: Access
    later: Access
    bytes: int
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """The addresses that the caching allocator gave to allocations, one row for each, sorted by
    `allocation`.

    An allocation may be left out if no other one ever gets its memory. After cudaFree, another
    allocation may get an address again. The log has a record EMPTY_CACHE for each cudaFree.

    Attributes:
        allocation: The number of the allocation.
        address: Its address. Addresses differ between devices, or all are of one device.
        size: Its size in bytes.
    """

    allocation: I64
    address: I64
    size: I64
