"""The data of a race, and of the places of allocations."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.timeline.columns import I64, RaceKind


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory by one record of the log.

    `stream` is None where the host itself does it. `launch` is the GRAPH_LAUNCH that ran a captured record, else -1.
    """

    record: int
    launch: int
    device: int
    stream: int | None


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses of the same bytes that nothing orders, one of them a write; the program asked for `earlier` first.

    It represents `count` pairs of the same kind, from the same stacks on the same streams, and is the first of them.
    `bytes` is the most that any pair shares.
    """

    kind: RaceKind
    earlier: Access
    later: Access
    bytes: int
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """The places that the caching allocator gave to allocations, by ascending `allocation`: those that may share
    memory.

    An address may pass to another allocation through cudaFree: EMPTY_CACHE in the log shows that.
    """

    allocation: I64
    address: I64  # unique among all devices, or of one device alone
    size: I64  # bytes
