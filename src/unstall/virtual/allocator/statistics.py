"""The statistics of the modelled allocator, as `torch.cuda.memory_stats()` has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stat:
    """One statistic of the allocator: its value now, its peak, and the sums of all increases and of all decreases."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def change(self, amount: int) -> None:
        """Adds `amount`, which may be negative."""
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
        """Yields `(name, value)` for each figure. The names are torch's: "current", "peak", "allocated" and "freed"."""
        yield "current", self.current
        yield "peak", self.peak
        yield "allocated", self.allocated
        yield "freed", self.freed


@dataclass(slots=True)
class PoolStat:
    """One statistic of the allocator, counted three times: for small requests, for large requests,
    and for both (`all`).
    """

    all: Stat = field(default_factory=Stat)
    large_pool: Stat = field(default_factory=Stat)
    small_pool: Stat = field(default_factory=Stat)

    def change(self, is_small: bool, amount: int) -> None:
        """Adds `amount`, which may be negative. `is_small` says whether it is of a small request."""
        self.all.change(amount)
        (self.small_pool if is_small else self.large_pool).change(amount)

    def stats(self) -> Iterator[tuple[str, Stat]]:
        yield "all", self.all
        yield "large_pool", self.large_pool
        yield "small_pool", self.small_pool


@dataclass(slots=True)
class Statistics:
    """All statistics of the allocator, with torch's names."""

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
    """The statistics that every request changes: for small requests under the key True, for large ones under False."""

    def __post_init__(self) -> None:
        changed = (self.active, self.active_bytes, self.requested_bytes, self.allocation, self.allocated_bytes)
        self._counted = {
            is_small: tuple(
                stat for each in changed for stat in (each.all, each.small_pool if is_small else each.large_pool)
            )
            for is_small in (False, True)
        }

    def handed_out(self, is_small: bool, size: int, requested: int) -> None:
        """Counts a block that the program got.

        Args:
            is_small: Whether the block is of a pool for small requests.
            size: The size of the block in bytes.
            requested: How many bytes the program asked for.
        """
        amounts = (1, 1, size, size, requested, requested, 1, 1, size, size)
        for stat, amount in zip(self._counted[is_small], amounts, strict=True):
            current = stat.current = stat.current + amount
            stat.allocated += amount
            if current > stat.peak:
                stat.peak = current

    def let_go(self, is_small: bool, size: int) -> None:
        """Counts a block that the program freed. Other streams may still use it. `is_small` says
        whether it is of a pool for small requests; `size` is its size in bytes.
        """
        for stat, amount in zip(self._counted[is_small][6:], (1, 1, size, size), strict=True):
            stat.current -= amount
            stat.freed += amount

    def freed(self, is_small: bool, size: int, requested: int) -> None:
        """Counts a freed block that no stream uses any more, so that it can be used again.

        Args:
            is_small: Whether the block is of a pool for small requests.
            size: The size of the block in bytes.
            requested: How many bytes the program had asked for.
        """
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
        """Returns a dict of all statistics. The keys are torch's, such as "allocated_bytes.all.peak"."""
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
