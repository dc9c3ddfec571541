"""Finds memory that a new allocation gets while a stream still uses it.

The home stream of a block is the stream on which it was allocated. The caching allocator gives a
freed block to the next request on its home stream, in the order of the host's calls. If only the
home stream uses the memory, its own order is enough. If a second stream uses it too, two things are
needed:

- When the allocation is freed, the second stream has finished its work on it, or `record_stream`
  delays the reuse.
- When the second stream first uses an allocation, the home stream has finished its earlier work on
  this memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unstall.timeline.columns import I32, I64, Bool, RaceKind
from unstall.virtual.log import LogCode
from unstall.virtual.races.clocks import LaneClocks
from unstall.virtual.races.counts import RaceCounts, Use
from unstall.virtual.races.found import Placement
from unstall.virtual.races.lanes import StreamLanes

_MOST_OF_A_KIND = 100  # most checks of uses that differ only in time, since each check searches all uses of memory
_NEVER = np.iinfo(np.int64).max

Part = tuple[int, int, dict[int, Use], bool]
"""A used part of an allocation: `(offset, bytes, uses, wrote)`. The offset is its distance in bytes
from the start of the allocation. `uses` has the last use by each lane (stream, or branch of a CUDA
graph). `wrote` says whether these uses write.
"""


@dataclass(slots=True)
class _Leftover:
    """A use of memory that may still have been running when the memory was freed.

    Attributes:
        use: The use.
        wrote: Whether it writes.
        address: The first address that it uses.
        size: How many bytes it uses.
        freed: The position of the free.
        until: For each lane (stream, or branch of a CUDA graph), the position from which on its
            work comes after the use.
    """

    use: Use
    wrote: bool
    address: int
    size: int
    freed: int
    until: list[int] = field(default_factory=list)


class Reuse:
    """Finds pairs of uses of the same memory, through two different allocations, whose order
    nothing ensures. It is told of the frees and the uses of allocations in the order of the log.
    """

    def __init__(
        self,
        records: np.ndarray,
        uses: np.ndarray,
        owner: I64,
        lanes: StreamLanes,
        placement: Placement,
        clocks: LaneClocks,
        counts: RaceCounts,
    ) -> None:
        self._records, self._uses, self._owner, self._lanes = records, uses, owner, lanes
        self._placement, self._clocks, self._counts = placement, clocks, counts
        self._other_streams: dict[int, set[int]] = {}
        self._pending: list[_Leftover] = []
        self._leftovers: list[_Leftover] = []
        self._how_many: dict[object, int] = {}
        self._claimed: set[tuple[int, int]] = set()
        self._index: _Index | None = None
        self._emptied = -1
        allocating = np.flatnonzero(records["code"] == LogCode.MALLOC)
        self._allocated = dict(zip(records["a"][allocating].tolist(), lanes.position[allocating].tolist(), strict=True))

    def uses_stream(self, allocation: int, lane: int) -> None:
        """To be called for each `record_stream`: the stream `lane` uses the allocation, too. The
        allocator gives the memory to no other allocation before this stream has finished its work
        on it.
        """
        self._other_streams.setdefault(allocation, set()).add(lane)

    def freed(self, allocation: int, home: int, position: int, parts: list[Part]) -> None:
        """To be called when an allocation is freed. Keeps those of its uses that may still run when
        the memory is used again.

        Args:
            allocation: The number of the allocation.
            home: The lane on which it was allocated: a stream, or a branch of a CUDA graph. Work on
                this lane may get the memory from now on.
            position: The position of the free, in the order in which records run.
            parts: The used parts of the allocation.
        """
        address = self._address(allocation)
        held_back = self._other_streams.pop(allocation, set())
        if address is None or home < 0:
            return
        clock = self._clocks.now(home)
        for offset, size, known, wrote in parts:
            for lane, use in known.items():
                if lane == home or lane in held_back or clock[lane] >= use.position:
                    continue
                if self._seen_often(("free", self._counts.way(use), home, wrote)):
                    continue
                leftover = _Leftover(use, wrote, address + offset, size, position, [_NEVER] * self._lanes.host)
                self._pending.append(leftover)
                self._leftovers.append(leftover)
        self.ordered(position)

    def ordered(self, position: int) -> None:
        """To be called after each synchronization. For each use of freed memory that may still run,
        finds the lanes (streams, or branches of CUDA graphs) whose work comes after this use from
        now on.

        `position` is the place of the synchronization in the order in which the records of the log
        run.
        """
        for leftover in list(self._pending):
            use = leftover.use
            for lane, known in enumerate(leftover.until):
                if known == _NEVER and (lane == use.lane or self._clocks.now(lane)[use.lane] >= use.position):
                    leftover.until[lane] = position
            if _NEVER not in leftover.until:
                self._pending.remove(leftover)

    def emptied(self, position: int) -> None:
        """To be called when the allocator's cache is emptied. cudaFree waits for all work before
        it, so no earlier use runs any more.

        `position` is the place of that in the order in which the records of the log run.
        """
        for leftover in self._pending:
            leftover.until = [min(known, position) for known in leftover.until]
        self._pending.clear()
        self._emptied = position

    def used(self, use: Use, allocation: int, home: int, offset: int, size: int, wrote: bool) -> None:
        """To be called for each use of an allocation. Adds a race if this is the first use of the
        allocation by a stream other than `home`, and the stream has not waited for earlier work of
        `home` on the same memory.

        Args:
            use: The use.
            allocation: The number of the allocation.
            home: The lane on which it was allocated: a stream, or a branch of a CUDA graph.
            offset: The distance in bytes of the used part from the start of the allocation.
            size: The size in bytes of the used part.
            wrote: Whether the use writes.
        """
        if home < 0 or use.lane == home or use.launch >= 0 or (allocation, use.lane) in self._claimed:
            return
        self._claimed.add((allocation, use.lane))
        address, allocated = self._address(allocation), self._allocated.get(allocation)
        known = max(self._clocks.now(use.lane)[home], self._emptied)
        if address is None or allocated is None or known >= allocated:
            return
        if self._seen_often(("use", self._counts.way(use), home)):
            return
        index = self._indexed()
        rows = index.within(known + 1, allocated, address + offset, size)
        rows = rows[(index.lane[rows] == home) & (wrote | index.write[rows])]
        if len(rows):
            row = int(rows[-1])
            self._counts.add(RaceKind.TAKEN_EARLY, index.use(row), use, index.shared(row, address + offset, size))

    def finish(self) -> None:
        """To be called at the end of the log. Adds a race for each use of freed memory that a later
        use of the same memory did not wait for.
        """
        for leftover in self._leftovers:
            index = self._indexed()
            rows = index.within(leftover.freed, _NEVER, leftover.address, leftover.size)
            until = np.array(leftover.until, dtype=np.int64)
            rows = rows[(index.position[rows] < until[index.lane[rows]]) & (leftover.wrote | index.write[rows])]
            if len(rows):
                row = int(rows[0])
                shared = index.shared(row, leftover.address, leftover.size)
                self._counts.add(RaceKind.REUSED, leftover.use, index.use(row), shared)

    def _seen_often(self, key: object) -> bool:
        self._how_many[key] = self._how_many.get(key, 0) + 1
        return self._how_many[key] > _MOST_OF_A_KIND

    def _address(self, allocation: int) -> int | None:
        placement = self._placement
        row = int(np.searchsorted(placement.allocation, allocation))
        if row == len(placement.allocation) or placement.allocation[row] != allocation:
            return None
        return int(placement.address[row])

    def _indexed(self) -> _Index:
        if self._index is None:
            self._index = _Index.of(self._uses, self._owner, self._lanes, self._placement)
        return self._index


@dataclass(frozen=True, eq=False, slots=True)
class _Index:
    """All uses of memory whose addresses are known, one row for each, in the order in which they
    run. Uses that were captured in CUDA graphs are left out.
    """

    position: I64
    record: I64
    lane: I32
    start: I64  # address
    end: I64
    write: Bool

    @classmethod
    def of(cls, uses: np.ndarray, owner: I64, lanes: StreamLanes, placement: Placement) -> _Index:
        at = np.minimum(np.searchsorted(placement.allocation, uses["allocation"]), len(placement.allocation) - 1)
        known = (placement.allocation[at] == uses["allocation"]) & ~lanes.captured[owner] & (uses["bytes"] > 0)
        rows = np.flatnonzero(known)
        start = placement.address[at[rows]] + uses["offset"][rows]
        owners = owner[rows]
        return cls(
            position=lanes.position[owners],
            record=owners,
            lane=lanes.of[owners],
            start=start,
            end=start + uses["bytes"][rows],
            write=uses["write"][rows] != 0,
        )

    def within(self, first: int, last: int, address: int, size: int) -> I64:
        """Returns the rows of the uses with a position in [first, last) that overlap the `size` bytes at `address`."""
        low, high = np.searchsorted(self.position, (first, last)).tolist()
        touches = (self.start[low:high] < address + size) & (self.end[low:high] > address)
        found: I64 = low + np.flatnonzero(touches)
        return found

    def use(self, row: int) -> Use:
        return Use(int(self.position[row]), int(self.record[row]), -1, int(self.lane[row]))

    def shared(self, row: int, address: int, size: int) -> int:
        """Returns how many of the `size` bytes at `address` the use in row `row` uses."""
        return min(int(self.end[row]), address + size) - max(int(self.start[row]), address)
