"""Device time by events: one before and one after each call, queued while the device is held back.

So the device runs the calls one after the other, with no host to wait for. What is measured is the span of a call on
its stream with what events add to it, and what other streams do only as far as this one waits for them. What is to be
taken off is found in `added.py`, of what is measured here once and for all calls:

- what two events add to a kernel that does next to nothing. That is more than two events take with nothing between (on
  an H200 2.9 µs, not 1.3): the front end needs as long for a launch and an event, however short the kernel is. How long
  that kernel itself runs is told by CUDA graphs of many of them, in which the next follows after next to nothing. Where
  there are no graphs, what two events take with nothing between is taken.
- how long the gap between two ops is on a stream: the period of ops that do next to nothing in a row, less that in a
  graph (on an H200 some 0.8 to 1 µs, by `benchmarks/device_delays.py`).
- how long it is in a graph, where no op is the same as the one before: the period of those that write elsewhere than
  the one before, less that of one and the same again and again (on an H200 0.95 and 0.77 µs, and the latter is what
  CUPTI records of it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.bench.adapters import PLACES, Adapter
from unstall.bench.blocker import Blocker

MOST = 400  # calls at once: with two events each they stay below the 1,022 launches that a stream's queue holds
_WAITS_S = 0.5
_EMPTY = 50
_ROWS, _IN_ROWS = 15, (20, 60)  # at once, and ops in one: less than a stream's queue holds


class QueueError(Exception):
    """Not even one call can be queued: it waits for the device."""


class ByEvents:
    """Takes samples by events on the adapter's current stream."""

    method = "events"

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self._most = MOST
        self.blocked = True
        """Whether the stream could be held back each time."""

    @cached_property
    def nothing_ns(self) -> float:
        """From one event to the next, with nothing between: the least that they add."""
        return self._median(_nothing)

    @cached_property
    def offset_ns(self) -> float:
        """What two events add to a kernel between them that does next to nothing."""
        own = self._own_ns
        return self.nothing_ns if own is None else max(0.0, self._median(self.adapter.mark) - own)

    @cached_property
    def floor_ns(self) -> float:
        """What is measured of next to no work: what takes less cannot be told from it."""
        return max(0.0, self._median(self.adapter.mark) - self.offset_ns)

    @cached_property
    def gap_ns(self) -> float | None:
        """Between two ops in a row that do next to nothing. None where there are no graphs that tell it."""
        own = self._own_ns
        return None if own is None else max(0.0, self._period_ns(lambda count: lambda: self._marks(count)) - own)

    @cached_property
    def graph_gap_ns(self) -> float:
        """Between two ops in a row in a CUDA graph, of which there are any here."""
        return max(0.0, self._graph_period_ns(PLACES) - (self._own_ns or 0.0))

    @cached_property
    def _own_ns(self) -> float | None:
        """How long a kernel runs that does next to nothing: by what a graph of more of them takes longer."""
        self.adapter.mark()
        return self._graph_period_ns() if self.adapter.graph(self.adapter.mark) is not None else None

    def _graph_period_ns(self, places: int = 1) -> float:
        return self._period_ns(lambda count: self.adapter.graph(lambda: self._marks(count, places)) or _nothing)

    def _period_ns(self, rows: Callable[[int], Callable[[], Any]]) -> float:
        """What one op more in a row takes; `rows` gives what launches so many."""
        times = []
        for count in _IN_ROWS:
            launch = rows(count)
            launch()
            times.append(self._median(launch, _ROWS))
        return max(0.0, (times[1] - times[0]) / (_IN_ROWS[1] - _IN_ROWS[0]))

    def _marks(self, count: int, places: int = 1) -> None:
        for number in range(count):
            self.adapter.mark(number % places)

    def _median(self, run: Callable[[], Any], count: int = _EMPTY) -> float:
        return float(np.median(self._raw(run, count, _nothing)))

    def take(
        self,
        run: Callable[[], Any],
        count: int,
        before: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> NDArray[np.float64]:
        """Samples in ns, with what events add; fewer than asked for where the queue holds no more. `before` is queued
        before each; `begin` is called before the first, and again where all are taken anew.

        Raises QueueError where a call waits for the device.
        """
        again = True
        while True:
            try:
                (begin or _nothing)()
                return self._raw(run, min(count, self._most), before or _nothing)
            except QueueError:
                # What loads a kernel waits for the device, once.
                if self._most == 1 and not again:
                    raise
                if not again:
                    self._most = max(1, min(count, self._most) // 4)
                again = False

    def _raw(self, run: Callable[[], Any], count: int, before: Callable[[], None]) -> NDArray[np.float64]:
        adapter = self.adapter
        adapter.synchronize()
        events: list[tuple[Any, Any]] = []
        with Blocker(adapter, _WAITS_S) as blocker:
            for _ in range(count):
                before()
                first = adapter.event()
                run()
                events.append((first, adapter.event()))
        adapter.synchronize()
        self.blocked = self.blocked and blocker.waits
        if blocker.timed_out:
            raise QueueError
        return np.array([adapter.between_ns(first, last) for first, last in events])


def _nothing() -> None:
    pass
