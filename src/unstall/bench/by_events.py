"""Device time by events: one before and one after each call, queued while the device is held back.

So the device runs the calls one after the other, with no host to wait for. What is taken off is what two events add to
a kernel that does next to nothing. That is more than two events take with nothing between (on an H200 3.1 µs, not 1.3):
the front end needs as long for a launch and an event, however short the kernel is. How long that kernel itself runs is
told by CUDA graphs of many of them, in which the next follows after some 0.25 µs. Where there are no graphs, what two
events take with nothing between is taken off.

What is measured is the span of a call on its stream: its ops and the gaps between them, and what other streams do only
as far as this one waits for them. How many gaps there are is told by a CUDA graph of the call; how long one is, by the
period of ops that do next to nothing in a row on a stream, less that in a graph, where gaps are next to none (on an
H200 some 0.8 µs, by `benchmarks/device_delays.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.bench.adapters import Adapter
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
        self._adapter = adapter
        self._most = MOST
        self._offset: float | None = None
        self._floor: float | None = None
        self._own: float | None = None
        self.blocked = True
        """Whether the stream could be held back each time."""

    @property
    def offset_ns(self) -> float:
        """What two events add to what is between them."""
        if self._offset is None:
            own = self._own_ns()
            around = _nothing if own is None else self._adapter.mark
            self._offset = max(0.0, self._median(around) - (own or 0.0))
        return self._offset

    @property
    def floor_ns(self) -> float:
        """What is measured of next to no work: what takes less cannot be told from it."""
        if self._floor is None:
            self._floor = max(0.0, self._median(self._adapter.mark) - self.offset_ns)
        return self._floor

    def gaps(self, run: Callable[[], Any]) -> tuple[int, float] | None:
        """How many gaps are between a call's ops, and how long one is, ns. None where that is not known.

        `run` is called once, while its stream is captured.
        """
        own = self._own_ns()
        ops = None if own is None else self._adapter.ops_in_a_row(run)
        if own is None or not ops:
            return None
        return ops - 1, max(0.0, self._period_ns(lambda count: lambda: self._marks(count)) - own)

    def _own_ns(self) -> float | None:
        """How long a kernel runs that does next to nothing: by what a graph of more of them takes longer."""
        if self._own is None:
            self._adapter.mark()
            if self._adapter.graph(self._adapter.mark) is None:
                return None
            self._own = self._period_ns(lambda count: self._adapter.graph(lambda: self._marks(count)) or _nothing)
        return self._own

    def _period_ns(self, rows: Callable[[int], Callable[[], Any]]) -> float:
        """What one op more in a row takes; `rows` gives what launches so many."""
        times = []
        for count in _IN_ROWS:
            launch = rows(count)
            launch()
            times.append(self._median(launch, _ROWS))
        return max(0.0, (times[1] - times[0]) / (_IN_ROWS[1] - _IN_ROWS[0]))

    def _marks(self, count: int) -> None:
        for _ in range(count):
            self._adapter.mark()

    def _median(self, run: Callable[[], Any], count: int = _EMPTY) -> float:
        return float(np.median(self._raw(run, count, _nothing)))

    def take(self, run: Callable[[], Any], count: int, before: Callable[[], None] | None) -> NDArray[np.float64]:
        """Samples in ns; fewer than asked for where the queue holds no more. `before` is queued before each.

        Raises QueueError where a call waits for the device.
        """
        offset = self.offset_ns
        again = True
        while True:
            try:
                return np.maximum(self._raw(run, min(count, self._most), before or _nothing) - offset, 0.0)
            except QueueError:
                # What loads a kernel waits for the device, once.
                if self._most == 1 and not again:
                    raise
                if not again:
                    self._most = max(1, min(count, self._most) // 4)
                again = False

    def _raw(self, run: Callable[[], Any], count: int, before: Callable[[], None]) -> NDArray[np.float64]:
        adapter = self._adapter
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
