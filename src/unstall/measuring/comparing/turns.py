"""Runs candidates (the functions to compare) in a given order, each for a short time. Measures
their times on the host or on the device.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstall.errors import UnstallError, UsageError
from unstall.measuring.adapters import Adapter
from unstall.measuring.cache import Caching
from unstall.measuring.comparing.rounds import Take
from unstall.measuring.device_time.by_events import ByEvents, QueueError
from unstall.measuring.device_time.event_overhead import event_overhead
from unstall.measuring.device_time.methods import DeviceObserver, observer_for
from unstall.measuring.exact_times import share_of_few, share_of_many

By: TypeAlias = Literal["device", "wall", "throughput"]
"""The time to compare: "device", the time that the device works for a call; "wall", the time of a
call and of the wait for its result; or "throughput", the time per call when calls directly follow
each other.
"""

_TURN_NS = 200_000  # a round is then shorter than the time slice of a neighbour, and mostly all quiet or all disturbed
_LEAST_NS = 1.0  # a call's time is at least this, so that ratios exist
_MOST_CALLS = 1 << 20
_BATCH_NS, _LEAST_IN_BATCH = 2_000_000, 8  # of calls that fill a device's pipeline
_LEAST_IN_BATCH_IF_BRIEF = 2
_WARM = 3
_LONG = 50  # a call longer than this many turns is a turn by itself, warm or not
_ADDED_S = 0.2  # to find out what events add to a candidate


def takes(
    candidates: Sequence[Caching], adapter: Adapter, by: By, each_s: Sequence[float] = (), *, brief: bool = False
) -> Take:
    """Returns a function that runs candidates (the functions to compare) in a given order. For each
    entry of the order, it returns the candidate's time per call in ns. A candidate may occur
    several times in the order.

    Args:
        candidates: The calls to time.
        adapter: The adapter for the framework and the device of the calls.
        by: The time to measure.
        each_s: A lower bound of each candidate's time per call on the host, in s.
        brief: Whether to make as few warm-up calls as possible.

    Raises:
        UsageError: The time that `by` names cannot be measured with this cache state or on this
            device.
    """
    if by == "device":
        return _worked(device_take(candidates, adapter), candidates, 1 if adapter.virtual or brief else _WARM - 1)
    return _on_host(candidates, adapter, by, each_s or [0.0] * len(candidates), brief=brief)


def back_to_back(caching: Caching, adapter: Adapter) -> Callable[[int], int]:
    """Returns a function that makes a given number of calls, one directly after the other, and
    waits once for all of them. It returns the total time of the calls in ns.
    """
    return _turn(caching, adapter, each=False)


def _on_host(candidates: Sequence[Caching], adapter: Adapter, by: By, each_s: Sequence[float], *, brief: bool) -> Take:
    if by == "throughput" and candidates[0].cache == "cold":
        raise UsageError('by="throughput" is of calls back to back, whose cache is never cold: take cache="hot"')
    turns = [_turn(caching, adapter, each=by == "wall") for caching in candidates]
    if adapter.virtual and by == "throughput":
        share = share_of_few if brief else share_of_many
        return lambda order: [max(share(turns[one]), _LEAST_NS) for one in order]
    fills = adapter.asynchronous and by == "throughput"
    ns, least = (_BATCH_NS, _LEAST_IN_BATCH_IF_BRIEF if brief else _LEAST_IN_BATCH) if fills else (_TURN_NS, 1)
    calls = [
        1 if caching.cache == "cold" else max(1 if brief and 1e9 * seconds > _LONG * ns else _calls(turn, ns), least)
        for caching, turn, seconds in zip(candidates, turns, each_s, strict=True)
    ]

    def take(order: Sequence[int]) -> NDArray[np.float64]:
        times = np.zeros(len(order))
        collects = gc.isenabled()
        for at, one in enumerate(order):
            candidates[one].flushed()
            gc.disable()
            try:
                times[at] = max(turns[one](calls[one]), 1) / calls[one]
            finally:
                if collects:
                    gc.enable()
        return times

    return take


def _turn(caching: Caching, adapter: Adapter, *, each: bool) -> Callable[[int], int]:
    """Returns a function that makes a given number of calls, and that returns their total time in
    ns.

    If `each` is true, the function waits for every call. If it is false, the function waits once,
    after the last call.
    """
    clock, waits = adapter.clock, _waits(adapter)

    def back_to_back(calls: int) -> int:
        run, times, result = caching.run, itertools.repeat(None, calls), None
        adapter.synchronize()
        began = clock()
        for _ in times:
            result = run()
        if waits:
            adapter.wait(result)
        return clock() - began

    def one_by_one(calls: int) -> int:
        run, wait, times = caching.run, adapter.wait, itertools.repeat(None, calls)
        adapter.synchronize()
        began = clock()
        for _ in times:
            wait(run())
        return clock() - began

    return one_by_one if each and waits else back_to_back


def _waits(adapter: Adapter) -> bool:
    """Returns whether calls may return before their work is done, so that the caller has to wait for the work."""
    kind = type(adapter)
    return kind.wait is not Adapter.wait or kind.synchronize is not Adapter.synchronize


def _calls(turn: Callable[[int], int], ns: int) -> int:
    """Makes warm-up calls. Returns the number of calls that take about `ns` nanoseconds in total.
    `turn` makes a given number of calls and returns their time in ns.
    """
    calls = 1
    if [turn(1) for _ in range(_WARM)][-1] > _LONG * ns:
        return 1
    while calls < _MOST_CALLS:
        took = min(turn(calls) for _ in range(2))
        if took >= ns / 2:
            return max(1, min(_MOST_CALLS, round(calls * ns / took)))
        calls = min(_MOST_CALLS, max(2 * calls, int(calls * ns / max(took, 1))))
    return calls


def device_take(candidates: Sequence[Caching], adapter: Adapter) -> Take:
    """Returns a function that runs candidates (the functions to compare) in a given order. For each
    entry of the order, it returns the time in ns that the device worked for the candidate's call.
    The time is 0 for a call without device work.

    Raises:
        UsageError: Device times cannot be measured on this device.
    """
    try:
        observer, why = observer_for(adapter, "auto")
        if observer is not None:
            take = _observed(_without_places(observer), candidates, adapter)
            take(range(len(candidates)))
            return take
    except UnstallError as error:
        why = str(error)
    adapter.synchronize()
    if adapter.event() is None:
        raise UsageError(f"{adapter.name} tells no device time{f': {why}' if why else ''}")
    return _by_events(candidates, adapter)


def _without_places(observer: DeviceObserver) -> DeviceObserver:
    """Returns an observer that uses the method of `observer`, but does not look for source lines. Looking for source
    lines takes time.
    """
    if observer.method != "cupti":
        return observer
    from unstall.measuring.device_time.by_cupti import ByCupti

    return ByCupti()


def _observed(observer: DeviceObserver, candidates: Sequence[Caching], adapter: Adapter) -> Take:
    def take(order: Sequence[int]) -> NDArray[np.float64]:
        turn = iter(order)
        seen = observer.observe(lambda: candidates[next(turn)].run(), len(order), adapter, candidates[0].flushed)
        return np.asarray(seen.busy_ns(), np.float64)

    return take


def _by_events(candidates: Sequence[Caching], adapter: Adapter) -> Take:
    events = ByEvents(adapter)
    before = candidates[0].before if candidates[0].cache == "cold" else None

    def take(order: Sequence[int]) -> NDArray[np.float64]:
        turn = iter(order)

        def begin() -> None:
            nonlocal turn
            turn = iter(order)

        with _no_waits():
            raw = events.take(lambda: candidates[next(turn)].run(), len(order), before, begin)
        return np.maximum(raw - less[np.asarray(order, np.intp)], 0.0)

    with _no_waits():
        less: NDArray[np.float64] = np.array(
            [event_overhead(events, caching.same, _ADDED_S).ns for caching in candidates]
        )
    return take


@contextmanager
def _no_waits() -> Iterator[None]:
    try:
        yield
    except QueueError:
        raise UsageError(
            'a function waits for the device, and so its time there cannot be taken by events: compare by="wall"'
        ) from None


def _worked(take: Take, candidates: Sequence[Caching], tries: int) -> Take:
    """Runs all candidates `tries` times. Returns a function that calls `take` and returns times of
    at least 1 ns.

    Raises:
        UsageError: A candidate has no work on the device.
    """
    for _ in range(tries):
        times = np.asarray(take(range(len(candidates))))
    idle = np.flatnonzero(times <= 0)
    if len(idle):
        raise UsageError(f'function {idle[0] + 1} has no work on the device: compare by="wall"')
    return lambda order: np.maximum(take(order), _LEAST_NS)
