"""Works out the overhead of two events, one before and one after a call. The device time of the
call is the time between the events, minus this overhead.

The simple estimate of the overhead is a sum: the overhead for one short kernel, plus one gap
between short kernels for each op after the first. But gaps depend on the kernels (on an H200 1.06
µs in one chain, 0.74 µs in other chains), and a long kernel hides a part of the overhead. If these
errors could matter, the call itself is measured in CUDA graphs of many calls. In a graph, gaps are
short and nearly equal. One more call makes the graph longer by the call's time and the call's gaps.
The overhead is then the call's time by events on the stream, minus the call's time without gaps.
Both times are measured with warm caches.

With cold caches, the same overhead is subtracted. But the difference then contains delays that the
overhead does not cover. On an H200, there are about 0.4 µs for each distinct kernel: the kernel's
code must be fetched again, and CUPTI would record a later start. Gaps are up to 0.3 µs longer.
Events cannot distinguish these delays from the time of the ops, so nothing is subtracted for the
delays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unstall.measuring.device_time.by_events import GRAPH_GAP_NS, ByEvents, QueueError
from unstall.measuring.wording import precise

_MATTERS = 0.03  # of a call's time; below, the simple estimate suffices: it is right to a third
_SAMPLES, _LEAST_SAMPLES = 30, 5
_OPS, _NS = 400, 3e6  # of the longer graph, about
_MOST_OPS = 2_000
_GAPS = 3  # at most so many simple gaps per op are subtracted


@dataclass(frozen=True, slots=True)
class EventOverhead:
    """What two events, one before and one after a call, add to the call's time. `ns` is this time
    in ns. `note` is a sentence for the report on how it was found, or None if none is needed.
    """

    ns: float
    note: str | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, and its times on its stream with warm caches.

    Attributes:
        run: Makes the call.
        ops: The number of ops that the call launches.
        raw_ns: The call's time in ns by events, including the overhead of the events.
        each_s: The call's time in s on the host, including the wait for the device.
    """

    run: Callable[[], object]
    ops: int
    raw_ns: float  # by events
    each_s: float  # on the host, with the wait


def event_overhead(events: ByEvents, run: Callable[[], object], seconds: float) -> EventOverhead:
    """Measures the overhead that two timed events add to the time of `run`.

    Calls `run` for about `seconds`. Some of the calls are captured as CUDA graphs.

    Raises:
        QueueError: A call waits for the device.
    """
    # A call that waits for the device must not be captured: it would fail halfway.
    about_ns = float(np.median(events.take(run, _LEAST_SAMPLES)))
    gap_ns = events.gap_ns
    ops = None if gap_ns is None else events.adapter.ops_in_a_row(run)
    if gap_ns is None or ops is None:
        held = "device time by events holds the gaps between a call's kernels, if there are several"
        return EventOverhead(events.offset_ns, held)
    gaps = max(0, ops - 1)
    simple_ns = events.offset_ns + gaps * gap_ns
    less = f"device time by events is the span less {gaps} gaps of {precise(gap_ns)} between a call's ops"
    simple = EventOverhead(simple_ns, less if gaps else None)
    if not ops or simple_ns < _MATTERS * about_ns:
        return simple
    call = _on_the_stream(events, run, ops, seconds)
    counts = _counts(call, seconds / 2)
    if counts is None:
        return simple
    try:
        in_graph_ns = _in_graphs(events, call, counts, seconds / 2)
    except QueueError:
        in_graph_ns = None
    if in_graph_ns is None:
        lacks = "CUDA graphs of many calls would tell more, and cannot be had of it"
        return EventOverhead(simple_ns, _and(simple.note, lacks))
    in_graph_ns -= ops * GRAPH_GAP_NS
    most_ns = events.offset_ns + _GAPS * ops * gap_ns
    if not 0 < in_graph_ns < call.raw_ns or call.raw_ns - in_graph_ns > most_ns:
        times = f"{precise(call.raw_ns)} between events and {precise(in_graph_ns)} in CUDA graphs of many calls"
        return EventOverhead(
            simple_ns, _and(simple.note, f"a call takes {times}, which gaps between ops do not explain")
        )
    ns = max(events.nothing_ns, call.raw_ns - in_graph_ns)
    found = f"so much shorter is it in CUDA graphs of {counts[0]} and {counts[1]} calls in a row"
    return EventOverhead(ns, f"device time by events is the time between them less {precise(ns)}: {found}")


def _on_the_stream(events: ByEvents, run: Callable[[], object], ops: int, seconds: float) -> _Call:
    """Takes samples of the call with warm caches, for about a quarter of `seconds`."""
    began = time.monotonic()
    samples = events.take(run, _LEAST_SAMPLES)
    each_s = (time.monotonic() - began) / len(samples)
    count = _within(seconds / 4, each_s, _LEAST_SAMPLES, _SAMPLES)
    return _Call(run, ops, float(np.median(events.take(run, count))), each_s)


def _counts(call: _Call, seconds: float) -> tuple[int, int] | None:
    """Returns (fewer, more): the number of calls to capture in a shorter CUDA graph, and the number for a longer one.
    Returns None if calls are too long.

    The difference between the two graphs shows the time of one more call. Both graphs are short enough to be captured
    and run in `seconds`.
    """
    more = min(_OPS // call.ops, int(_NS / call.raw_ns), int(0.7 * seconds / call.each_s))
    most = _MOST_OPS // call.ops
    if most < 2 or 3 * call.each_s > seconds:
        return None
    more = min(max(3, more), most)
    return max(1, more // 3), more


def _in_graphs(events: ByEvents, call: _Call, counts: tuple[int, int], seconds: float) -> float | None:
    """Returns the time in ns that one more call adds to a CUDA graph, or None if a graph of the call must not be
    launched repeatedly.
    """

    def row(count: int) -> Callable[[], object] | None:
        def calls() -> None:
            for _ in range(count):
                call.run()  # results are let go at once, so that each call writes where the last one did

        return events.adapter.graph(calls)

    launches = ByEvents(events.adapter)  # a stream's queue may hold fewer graphs than calls
    return launches.period_ns(row, counts, seconds)


def _within(seconds: float, each_s: float, least: int, most: int) -> int:
    return most if most * each_s <= seconds else max(least, int(seconds / each_s))


def _and(note: str | None, more: str) -> str:
    return f"{note}; {more}" if note else more
