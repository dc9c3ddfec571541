"""Groups pairs of racing accesses into races. One race stands for all pairs that the same code made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unstall.timeline.columns import RaceKind
from unstall.virtual.races.found import Access, Race
from unstall.virtual.races.lanes import StreamLanes

_Way = tuple[int, int, int, int]


class Use(NamedTuple):
    """One access to memory by a record of the log. `launch` is the graph launch that ran a captured access, or -1.
    `lane` is the stream or the branch of a graph on which the access runs.
    """

    position: int
    record: int
    launch: int
    lane: int


class RaceCounts:
    """Counts pairs of racing accesses, in groups.

    The pairs of a group have the same kind of race. Their earlier accesses have the same record code, signature, stack
    and lane, and so have their later accesses. A lane is a stream, or a branch of a graph. A pair is ignored if the
    record of its later access is not in `within`. The record of a captured access is the record of the graph launch.
    """

    def __init__(self, records: np.ndarray, lanes: StreamLanes, within: range) -> None:
        self._records, self._lanes, self._within = records, lanes, within
        self._ways: dict[tuple[int, int], _Way] = {}
        self._found: dict[tuple[RaceKind, _Way, _Way], list[int]] = {}
        self._first: dict[tuple[RaceKind, _Way, _Way], tuple[Use, Use]] = {}

    def add(self, kind: RaceKind, earlier: Use, later: Use, size_bytes: int) -> None:
        if (later.launch if later.launch >= 0 else later.record) not in self._within:
            return
        key = (kind, self.way(earlier), self.way(later))
        if key not in self._found:
            self._first[key] = earlier, later
        known = self._found.setdefault(key, [0, 0])
        known[0] += 1
        known[1] = max(known[1], size_bytes)

    def way(self, use: Use) -> _Way:
        """Returns the key by which accesses are grouped: (record code, signature, stack, lane)."""
        key = (use.record, use.lane)
        way = self._ways.get(key)
        if way is None:
            record = self._records[use.record]
            way = self._ways[key] = (int(record["code"]), int(record["id"]), int(record["stack"]), use.lane)
        return way

    def races(self) -> tuple[Race, ...]:
        """Returns one race for each group of pairs. Sorts the groups by the later access of their first pair."""
        races = []
        for (kind, *_), (earlier, later), (count, size) in zip(
            self._found, self._first.values(), self._found.values(), strict=True
        ):
            races.append((later.position, Race(kind, self._access(earlier), self._access(later), size, count)))
        return tuple(race for _, race in sorted(races, key=lambda found: found[0]))

    def _access(self, use: Use) -> Access:
        on_host = use.lane == self._lanes.host
        return Access(
            record=use.record,
            launch=use.launch,
            device=int(self._records["device"][use.record] if on_host else self._lanes.device[use.lane]),
            stream=None if on_host else int(self._lanes.stream[use.lane]),
        )
