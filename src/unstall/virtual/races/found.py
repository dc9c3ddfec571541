"""What there is to say of a race, and what may be said of where allocations lie."""

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
    """Two accesses of the same bytes that nothing orders, one of them a write; `earlier` was asked for first.

    It stands for `count` pairs of the same kind, from the same stacks on the same streams; it is the first of them.
    `bytes` is the most that any pair shares.
    """

    kind: RaceKind
    earlier: Access
    later: Access
    bytes: int
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Where the caching allocator put allocations, a row each, ascending by `allocation`: those that may share memory.

    Addresses that go from one to another through cudaFree need not differ: EMPTY_CACHE says so in the log.
    """

    allocation: I64
    address: I64  # unique among all devices, or of one device alone
    size: I64  # bytes
