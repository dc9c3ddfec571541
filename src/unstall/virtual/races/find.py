"""Finds the races in the log: the shim's records of what a program asks of its GPU."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I64, RaceKind
from unstall.virtual.log import LogCode
from unstall.virtual.races.clocks import LaneClocks
from unstall.virtual.races.counts import RaceCounts, Use
from unstall.virtual.races.found import Placement, Race
from unstall.virtual.races.lanes import WORK, StreamLanes, lanes_of
from unstall.virtual.races.reuse import Reuse
from unstall.virtual.races.schedule import BEGIN_LAUNCH, schedule, waits_for_copy
from unstall.virtual.races.shared import SharedUses, record_of_use, shared_uses


def find_races(
    records: np.ndarray, uses: np.ndarray, placement: Placement | None = None, within: range | None = None
) -> tuple[Race, ...]:
    """Returns the races of a whole log, in the order in which they first occur.

    Args:
        records: The records of the log, with dtype `log.RECORD`.
        uses: The uses of memory in the log, with dtype `log.USE`.
        placement: The addresses of allocations; None if they are unknown. If they are known, the
            result also has races over memory that is freed and that another allocation gets while a
            stream still uses it. Private pools of CUDA graphs are left out.
        within: Numbers of records. Only races whose later access one of these records asked for are
            returned. None for all races.

    Raises:
        ValueError: The log contradicts itself.
    """
    owner = record_of_use(records, uses)
    lanes = lanes_of(records)
    shared = shared_uses(records, uses, owner, lanes, reused=placement is not None)
    if shared is None:
        return ()
    counts = RaceCounts(records, lanes, range(len(records)) if within is None else within)
    clocks = LaneClocks(lanes)
    reuse = Reuse(records, uses, owner, lanes, placement, clocks, counts) if placement is not None else None
    _Walk(records, lanes, shared, clocks, counts, reuse).run()
    return counts.races()


class _Walk:
    """One pass over the records that matter for races, in the order in which they run.

    It keeps the last write and the last read of each segment of memory by each lane. A lane is a
    stream, or a branch of a CUDA graph.
    """

    def __init__(
        self,
        records: np.ndarray,
        lanes: StreamLanes,
        shared: SharedUses,
        clocks: LaneClocks,
        counts: RaceCounts,
        reuse: Reuse | None,
    ) -> None:
        self.records, self.lanes, self.shared, self.clocks = records, lanes, shared, clocks
        self.counts, self.reuse = counts, reuse
        self.writes: list[dict[int, Use]] = [{} for _ in shared.size]
        self.reads: list[dict[int, Use]] = [{} for _ in shared.size]

    def run(self) -> None:
        shared, clocks = self.shared, self.clocks
        using = np.unique(shared.record)
        rows = schedule(self.records, self.lanes, using, np.fromiter(shared.home, dtype=np.int64))
        own_uses = self._uses_of(rows.record)
        ends_at_once = waits_for_copy(self.records)[rows.record]
        graphs = {graph.number: graph.own for graph in self.lanes.graphs}
        object_of = self.records["a"][rows.record]
        columns = (rows.position, rows.record, rows.launch, rows.lane, rows.code, rows.graph, object_of, ends_at_once)
        for (position, record, launch, lane, code, graph, a, ends), (first, last) in zip(
            zip(*(column.tolist() for column in columns), strict=True), own_uses, strict=True
        ):
            if code in _WORKS or code <= LogCode.OP_END:
                if first < last:
                    self._access(Use(position, record, launch, lane), first, last)
                if ends:
                    clocks.host_waits(lane, position)
            elif code == LogCode.EVENT_RECORD:
                clocks.record((graph, a), lane, position)
            elif code == LogCode.EVENT_WAIT:
                clocks.wait((graph, a), lane)
            elif code == LogCode.SYNC_EVENT:
                clocks.host_waits_for_event((graph, a))
            elif code == LogCode.SYNC_STREAM:
                clocks.host_waits(lane, position)
            elif code == LogCode.SYNC_DEVICE:
                clocks.host_waits_for_device(int(self.records["device"][record]), position)
            elif code == BEGIN_LAUNCH:
                clocks.begin_launch(a, graphs.get(a, ()), lane, position)
            elif code == LogCode.GRAPH_LAUNCH:
                clocks.end_launch(a, graphs.get(a, ()), lane, position)
            elif self.reuse is not None:
                self._of_allocations(self.reuse, code, a, lane, position)
                continue
            if self.reuse is not None and code in _ORDERS:
                self.reuse.ordered(position)
        if self.reuse is not None:
            self.reuse.finish()

    def _uses_of(self, record: I64) -> list[tuple[int, int]]:
        first = np.searchsorted(self.shared.record, record)
        last = np.searchsorted(self.shared.record, record, "right")
        return list(zip(first.tolist(), last.tolist(), strict=True))

    def _access(self, use: Use, first: int, last: int) -> None:
        lane, shared = use.lane, self.shared
        on_host = lane == self.lanes.host
        clock = self.clocks.host if on_host else self.clocks.now(lane)
        columns = (shared.first, shared.last, shared.write)
        parts = list(zip(*(column[first:last].tolist() for column in columns), strict=True))
        found: dict[Use, tuple[RaceKind, set[int]]] = {}
        for start, end, write in parts:
            after_write = RaceKind.WRITTEN_TWICE if write else RaceKind.READ_EARLY
            for segment in range(start, end):
                for other, earlier in self.writes[segment].items():
                    if other != lane and clock[other] < earlier.position:
                        _note(found, earlier, after_write, segment)
                for other, earlier in self.reads[segment].items() if write else ():
                    if other != lane and clock[other] < earlier.position:
                        _note(found, earlier, RaceKind.OVERWRITTEN_EARLY, segment)
        for earlier, (kind, segments) in found.items():
            self.counts.add(kind, earlier, use, sum(int(shared.size[segment]) for segment in segments))
        if on_host:
            return
        for start, end, write in parts:
            known = self.writes if write else self.reads
            for segment in range(start, end):
                known[segment][lane] = use
        if self.reuse is not None and not found:  # if this use races already, the same wait fixes both
            for row, (start, end, write) in enumerate(parts, first):
                allocation = int(shared.allocation[row])
                size = int(shared.size[start:end].sum())
                self.reuse.used(use, allocation, shared.home[allocation], int(shared.offset[start]), size, write)

    def _of_allocations(self, reuse: Reuse, code: int, allocation: int, lane: int, position: int) -> None:
        if code == LogCode.EMPTY_CACHE:
            reuse.emptied(position)
        elif code == LogCode.USE_STREAM:
            reuse.uses_stream(allocation, lane)
        elif code == LogCode.FREE:
            first, last = self.shared.segments_of[allocation]
            parts = [
                (int(self.shared.offset[i]), int(self.shared.size[i]), known[i], write)
                for i in range(first, last)
                for known, write in ((self.writes, True), (self.reads, False))
                if known[i]
            ]
            reuse.freed(allocation, self.shared.home[allocation], position, parts)


def _note(found: dict[Use, tuple[RaceKind, set[int]]], earlier: Use, kind: RaceKind, segment: int) -> None:
    """Adds a race of the current access with `earlier` to `found`. If the two race on several
    segments of memory, all segments are kept, and the worst kind of race.
    """
    worst, segments = found.setdefault(earlier, (kind, set()))
    segments.add(segment)
    if kind < worst:
        found[earlier] = kind, segments


_WORKS = frozenset(map(int, WORK))
_ORDERS = frozenset(
    map(
        int,
        (
            LogCode.EVENT_WAIT,
            LogCode.SYNC_EVENT,
            LogCode.SYNC_STREAM,
            LogCode.SYNC_DEVICE,
            LogCode.GRAPH_LAUNCH,
            LogCode.COPY,
        ),
    )
)
