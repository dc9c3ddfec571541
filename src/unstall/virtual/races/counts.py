"""Counts pairs of racing accesses. Pairs that the same code made are one race."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unstall.timeline.columns import RaceKind
from unstall.virtual.races.found import Access, Race
from unstall.virtual.races.lanes import StreamLanes

_Way = tuple[int, int, int, int]


class Use(NamedTuple):
    """One access to memory.

    Attributes:
        position: Its place in the order in which the records of the log run.
        record: The number of the record that makes it.
        launch: If it was captured in a CUDA graph, the number of the record that launched the
            graph; else -1.
        lane: The stream, or the branch of a CUDA graph, on which it runs.
    """

    position: int
    record: int
    launch: int
    lane: int


class RaceCounts:
    """Counts pairs of racing accesses.

    Pairs are one race if they are of the same kind, and if both their earlier and their later
    accesses were asked for by the same call, from the same call stack, on the same lane. A lane is
    a stream, or a branch of a CUDA graph.

    Args:
        records: The records of the log.
        lanes: The lane and the position of each record.
        within: Numbers of records. A pair counts only if the record that asked for its later access
            is among them. For a captured access, that is the record that launched the graph.
    """

    def __init__(self, records: np.ndarray, lanes: StreamLanes, within: range) -> None:
        self._records, self._lanes, self._within = records, lanes, within
        self._ways: dict[tuple[int, int], _Way] = {}
        self._found: dict[tuple[RaceKind, _Way, _Way], list[int]] = {}
        self._first: dict[tuple[RaceKind, _Way, _Way], tuple[Use, Use]] = {}

    def add(self, kind: RaceKind, earlier: Use, later: Use, size_bytes: int) -> None:
        """Counts a pair of accesses that race on `size_bytes` bytes."""
        if (later.launch if later.launch >= 0 else later.record) not in self._within:
            return
        key = (kind, self.way(earlier), self.way(later))
        if key not in self._found:
            self._first[key] = earlier, later
        known = self._found.setdefault(key, [0, 0])
        known[0] += 1
        known[1] = max(known[1], size_bytes)

    def way(self, use: Use) -> _Way:
        """Returns what is equal for accesses that count as the same: `(code of the record,
        signature, call stack, lane)`, each as a number.
        """
        key = (use.record, use.lane)
        way = self._ways.get(key)
        if way is None:
            record = self._records[use.record]
            way = self._ways[key] = (int(record["code"]), int(record["id"]), int(record["stack"]), use.lane)
        return way

    def races(self) -> tuple[Race, ...]:
        """Returns the races, in the order of the later accesses of their first pairs."""
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
