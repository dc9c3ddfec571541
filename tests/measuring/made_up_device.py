"""A device of one stream whose times are known: what events, gaps and launches of graphs add to its ops is made up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from unstall.measuring.adapters import Adapter
from unstall.measuring.device_time.by_events import GRAPH_GAP_NS

EVENT_NS, BEGIN_NS, GAP_NS, MARK_NS, GRAPH_NS = 1_280, 1_600, 770, 690, 4_000
_NOISE_NS = 20


class MadeUpDevice(Adapter):
    """Functions put ops on it by `op`. As on an H200, two events add 1.28 µs to nothing and 2.88 to a short op."""

    name = "a device that is made up"
    asynchronous = True

    def __init__(self, *, graphs: bool = True) -> None:
        self.captures = 0  # of graphs of anything but marks
        self.slower_in_graphs = 1.0  # what ops take there, relatively
        self.capturing = False
        self.launchable_again = True
        self._graphs = graphs
        self._now = 0.0
        self._after_event = False
        self._cold = False
        self._row: list[float] = []
        self._random = random.Random(1)

    def op(
        self,
        ns: float,
        *,
        gap_ns: float = GAP_NS,
        begin_ns: float = BEGIN_NS,
        cold_ns: float = 0.0,
    ) -> None:
        """An op of so many ns, `cold_ns` longer if it is the first after the flush. Before it is a gap where it follows
        on another op, and `begin_ns` where it follows on an event."""
        if self.capturing:
            self._row.append(ns)
            return
        self._now += (begin_ns if self._after_event else gap_ns) + ns + (cold_ns if self._cold else 0)
        self._now += self._random.uniform(-_NOISE_NS, _NOISE_NS)
        self._after_event = self._cold = False

    @property
    def cache_bytes(self) -> int:
        return 1 << 20

    def flusher(self) -> Callable[[], None]:
        def flush() -> None:
            self._cold = True

        return flush

    def event(self) -> float:
        self._now += EVENT_NS
        self._after_event = True
        return self._now

    def between_ns(self, first: Any, last: Any) -> float:
        return float(last - first)

    def mark(self) -> None:
        self.op(MARK_NS)

    def _capture(self, run: Callable[[], Any]) -> list[float]:
        self._row, self.capturing = [], True
        try:
            run()
        finally:
            self.capturing = False
        return self._row

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        row = self._capture(run)
        marks = set(row) == {MARK_NS}
        self.captures += not marks
        if not self._graphs or not (marks or self.launchable_again):
            return None
        slower = 1.0 if marks else self.slower_in_graphs
        total_ns = sum(ns * slower for ns in row) + GRAPH_GAP_NS * (len(row) - 1)
        return lambda: self.op(total_ns, begin_ns=GRAPH_NS, gap_ns=GRAPH_NS)

    def ops_in_a_row(self, run: Callable[[], Any]) -> int | None:
        return len(self._capture(run)) if self._graphs else None
