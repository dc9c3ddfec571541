"""The statistics of `torch.cuda.memory_stats()`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stat:
    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def change(self, amount: int) -> None:
        current = self.current = self.current + amount
        if amount < 0:
            self.freed -= amount
            return
        self.allocated += amount
        if current > self.peak:  # not max(): a call doubles the cost of this function, which runs ten times a request
            self.peak = current

    def reset_peak(self) -> None:
        self.peak = self.current

    def reset_accumulated(self) -> None:
        self.allocated = self.freed = 0

    def items(self) -> Iterator[tuple[str, int]]:
        yield "current", self.current
        yield "peak", self.peak
        yield "allocated", self.allocated
        yield "freed", self.freed


@dataclass(slots=True)
class PoolStat:
    """One statistic in three variants: for the small pool, for the large pool, and for both pools together (`all`)."""

    all: Stat = field(default_factory=Stat)
    large_pool: Stat = field(default_factory=Stat)
    small_pool: Stat = field(default_factory=Stat)

    def change(self, is_small: bool, amount: int) -> None:
        self.all.change(amount)
        (self.small_pool if is_small else self.large_pool).change(amount)

    def stats(self) -> Iterator[tuple[str, Stat]]:
        yield "all", self.all
        yield "large_pool", self.large_pool
        yield "small_pool", self.small_pool


@dataclass(slots=True)
class Statistics:
    allocation: PoolStat = field(default_factory=PoolStat)
    segment: PoolStat = field(default_factory=PoolStat)
    active: PoolStat = field(default_factory=PoolStat)
    inactive_split: PoolStat = field(default_factory=PoolStat)
    allocated_bytes: PoolStat = field(default_factory=PoolStat)
    reserved_bytes: PoolStat = field(default_factory=PoolStat)
    active_bytes: PoolStat = field(default_factory=PoolStat)
    inactive_split_bytes: PoolStat = field(default_factory=PoolStat)
    requested_bytes: PoolStat = field(default_factory=PoolStat)
    oversize_allocations: Stat = field(default_factory=Stat)
    oversize_segments: Stat = field(default_factory=Stat)
    num_alloc_retries: int = 0
    num_ooms: int = 0
    num_sync_all_streams: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0
    _counted: dict[bool, tuple[Stat, ...]] = field(init=False)
    """The statistics that every request changes. The key True is for small pools, the key False for large pools."""

    def __post_init__(self) -> None:
        changed = (self.active, self.active_bytes, self.requested_bytes, self.allocation, self.allocated_bytes)
        self._counted = {
            is_small: tuple(
                stat for each in changed for stat in (each.all, each.small_pool if is_small else each.large_pool)
            )
            for is_small in (False, True)
        }

    def handed_out(self, is_small: bool, size: int, requested: int) -> None:
        """Counts an allocated block in each statistic. Updates all statistics in one loop, because each request calls
        this method."""
        amounts = (1, 1, size, size, requested, requested, 1, 1, size, size)
        for stat, amount in zip(self._counted[is_small], amounts, strict=True):
            current = stat.current = stat.current + amount
            stat.allocated += amount
            if current > stat.peak:
                stat.peak = current

    def let_go(self, is_small: bool, size: int) -> None:
        """Counts a block that the program freed."""
        for stat, amount in zip(self._counted[is_small][6:], (1, 1, size, size), strict=True):
            stat.current -= amount
            stat.freed += amount

    def freed(self, is_small: bool, size: int, requested: int) -> None:
        """Counts a freed block that no stream uses any more."""
        amounts = (1, 1, size, size, requested, requested)
        for stat, amount in zip(self._counted[is_small][:6], amounts, strict=True):
            stat.current -= amount
            stat.freed += amount

    def reset_peak(self) -> None:
        for _, stat in self._stats():
            stat.reset_peak()

    def reset_accumulated(self) -> None:
        for _, stat in self._stats():
            stat.reset_accumulated()
        for name in COUNTERS:
            setattr(self, name, 0)

    def flat(self) -> dict[str, int]:
        """Returns a dict from torch's keys, such as "allocated_bytes.all.peak", to values."""
        flat = {f"{prefix}.{name}": value for prefix, stat in self._stats() for name, value in stat.items()}
        return flat | {name: getattr(self, name) for name in COUNTERS}

    def _stats(self) -> Iterator[tuple[str, Stat]]:
        for name in POOL_STATS:
            for pool, stat in getattr(self, name).stats():
                yield f"{name}.{pool}", stat
        yield "oversize_allocations", self.oversize_allocations
        yield "oversize_segments", self.oversize_segments


POOL_STATS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
COUNTERS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")
