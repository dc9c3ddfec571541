"""Measures device time by one event before and one event after each call. Calls and events are
queued while the stream is blocked. So the device runs the calls one after the other and never waits
for the host.

The measured time is the span of a call on its stream plus the overhead of the events. Work on
another stream counts only if the call's stream waits for this work. `event_overhead.py` works out
the overhead from two quantities, which are measured in this module, once in a process:

- The time that two events add to the time of an almost empty kernel, if one event is before the
  kernel and one after it. On an H200 it is 2.9 µs. Two events with nothing between them take only
  1.3 µs. The reason is that the front end needs some time for a launch and an event, even if the
  kernel is very short. CUDA graphs of many almost empty kernels show how long one such kernel runs,
  because the gaps in a graph are tiny. If graphs do not work, the overhead is taken from two events
  with nothing between them.
- The gap between two ops on a stream. It is the period of almost empty ops in a row, minus the time
  of one such op. On an H200 the gap is about 0.8 to 1 µs (`benchmarks/device_delays.py`).

Events cannot measure the gap between ops in a graph: they only measure the sum of each op and its
gap. So this gap is a constant, GRAPH_GAP_NS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters import Adapter
from unstall.measuring.device_time.blocker import Blocker

_AT_ONCE, _AT_ONCE_NS = 10, 100_000
"""The largest number of calls in the queue, and about the longest total time of the queued calls in ns.

On an H200, events add 0.5 to 0.7 µs more to a short call if 100 calls are queued than if 10 calls are queued. If calls
are long, only a few are queued. So the device rests between the queued batches, as it does while its records are taken.
Without the rest, its clock frequency falls.
"""
_WAITS_S = 0.5
_EMPTY = 50
_IN_ROWS = 20, 60  # ops: less than a stream's queue holds
_TURNS, _LAUNCHES = 3, 5

GRAPH_GAP_NS = 220
"""The gap in ns between two ops that follow each other in a CUDA graph.

On an H200 (torch 2.11, driver 580) the gap was 0.18 to 0.27 µs for five different ops. It was
computed for each op from graphs of up to 600 ops: the time per op without a recorder, less the time
of the same op alone in CUPTI's record.

On an H100 it was 0.05 to 0.25 µs for elementwise ops of at least 65,536 elements and for matrix
products. It was -0.08 to 0.1 µs for reductions and for ops of 4,096 elements: such ops overlap in a
graph. So the time of a chain of short ops is off by up to 0.3 µs for each op.
"""


class QueueError(Exception):
    """Raised if calls cannot be queued, because each call waits for the device."""


class ByEvents:
    """Measures times of calls by events with timing on the adapter's current stream.

    Attributes:
        adapter: The adapter of the device.
        blocked: Whether the stream could be blocked every time its queue was filled.
    """

    method = "events"

    def __init__(self, adapter: Adapter, at_once: int = _AT_ONCE) -> None:
        self.adapter = adapter
        self._most = at_once
        self.blocked = True
        """Whether the stream could be blocked every time its queue was filled."""

    @cached_property
    def nothing_ns(self) -> float:
        """The time in ns between two events with nothing between them. It is the least overhead of events."""
        return self._median(_nothing)

    @cached_property
    def offset_ns(self) -> float:
        """The overhead in ns that two events add to an almost empty kernel between them."""
        own = self._own_ns
        return self.nothing_ns if own is None else max(0.0, self._median(self.adapter.mark) - own)

    @cached_property
    def floor_ns(self) -> float:
        """The time in ns that this method measures for an almost empty kernel. A shorter time
        cannot be distinguished from it.
        """
        return max(0.0, self._median(self.adapter.mark) - self.offset_ns)

    @cached_property
    def gap_ns(self) -> float | None:
        """The gap in ns between two almost empty ops that follow each other on a stream.

        Measuring the gap needs CUDA graphs. The value is None if CUDA graphs do not work.
        """
        period = self.period_ns(lambda count: partial(self._marks, count), _IN_ROWS)
        return None if self._own_ns is None or period is None else max(0.0, period - self._own_ns)

    @cached_property
    def _own_ns(self) -> float | None:
        """The time in ns of an almost empty kernel alone, measured by CUDA graphs of different lengths. None if CUDA
        graphs do not work.
        """
        self.adapter.mark()
        period = self.period_ns(lambda count: self.adapter.graph(partial(self._marks, count)), _IN_ROWS)
        return None if period is None else max(0.0, period - GRAPH_GAP_NS)

    def period_ns(
        self, row: Callable[[int], Callable[[], object] | None], counts: tuple[int, int], seconds: float = _WAITS_S
    ) -> float | None:
        """Returns the time in ns that one more op adds to a row of ops. A row is a number of ops
        that follow each other, on a stream or in a CUDA graph.

        Several rows are queued at a time, because a CUDA graph that runs alone on an idle device is
        slower: on an H200, each op of such a graph takes about 0.2 µs longer.

        Args:
            row: `row(count)` returns a function that launches a row of `count` ops, or None if such
                a row is not possible.
            counts: The number of ops in a short row and in a long row. The times of the two rows
                are compared.
            seconds: The approximate upper limit of the time to measure, in s.

        Returns:
            The time, or None if `row` returns None.
        """
        short = row(counts[0])
        long = row(counts[1]) if short is not None else None
        if short is None or long is None:
            return None
        began = time.monotonic()
        apart: list[float] = []
        while len(apart) < _TURNS and (not apart or time.monotonic() - began < seconds):
            apart.append(self._of_several(long) - self._of_several(short))
        return max(0.0, float(np.median(apart)) / (counts[1] - counts[0]))

    def _of_several(self, launch: Callable[[], object]) -> float:
        return float(np.median(self._tried(lambda: self._raw(launch, min(self._most, _LAUNCHES), _nothing))))

    def _marks(self, count: int) -> None:
        for _ in range(count):
            self.adapter.mark()

    def _median(self, run: Callable[[], object], count: int = _EMPTY) -> float:
        return float(np.median(self.take(run, count)))

    def take(
        self,
        run: Callable[[], object],
        count: int,
        before: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> NDArray[np.float64]:
        """Returns `count` samples of the time of `run` in ns, including the overhead of events.

        Args:
            run: Makes the call.
            count: The number of samples.
            before: Queues other work before each call. The other work is not timed.
            begin: Is called before the first sample, and again each time that all samples must be
                repeated.

        Raises:
            QueueError: A call waits for the device.
        """

        def samples() -> NDArray[np.float64]:
            (begin or _nothing)()
            return self._in_batches(run, count, before or _nothing)

        return self._tried(samples)

    def _tried(self, samples: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        again = True
        while True:
            try:
                return samples()
            except QueueError:
                # Loading a kernel waits for the device, but only once.
                if self._most == 1 and not again:
                    raise
                if not again:
                    self._most = max(1, self._most // 4)
                again = False

    def _in_batches(self, run: Callable[[], object], count: int, before: Callable[[], None]) -> NDArray[np.float64]:
        batches = [self._raw(run, 1, before)]
        at_once = int(min(self._most, max(1.0, _AT_ONCE_NS / max(batches[0][0], 1.0))))
        batches += [self._raw(run, min(at_once, count - done), before) for done in range(1, count, at_once)]
        return np.concatenate(batches)

    def _raw(self, run: Callable[[], object], count: int, before: Callable[[], None]) -> NDArray[np.float64]:
        adapter = self.adapter
        adapter.synchronize()
        events: list[tuple[object, object]] = []
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
