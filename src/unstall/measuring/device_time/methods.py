"""Chooses a method that can measure device time on this device, and takes samples by this method."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unstall.errors import UnstallError, UsageError
from unstall.measuring.adapters import Adapter
from unstall.measuring.cache import Caching
from unstall.measuring.device_time.by_events import ByEvents, QueueError
from unstall.measuring.device_time.device_ops import DeviceOps
from unstall.measuring.device_time.event_overhead import EventOverhead, event_overhead
from unstall.measuring.measurement import Method
from unstall.measuring.sampling import FEWEST, LEAST, Sampled, Until, sample_until
from unstall.measuring.statistics import Spread

_LOOKED_AT = 3  # calls whose ops, waits and places are looked at
_FIRST = 100  # samples of the first recording: each costs some 100 ms to begin and to end
_ADDED = 0.5  # of the time, for what events add to a call


class DeviceObserver(Protocol):
    """An object that finds every op that the device runs for every call of a function."""

    @property
    def method(self) -> Method: ...

    def observe(
        self, run: Callable[[], object], count: int, adapter: Adapter, before: Callable[[], None]
    ) -> DeviceOps: ...


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """The device time of a function.

    Attributes:
        method: How the device time was measured.
        device: The time that the device is busy for one call. None if it could not be measured.
        span: The time from the start of a call's first op to the end of its last op. None if it
            could not be measured.
        anatomy: The device ops of a few calls, or None if they could not be observed.
        notes: Sentences for the report on how far the times can be trusted.
        floor_ns: The shortest time in ns that this method can measure.
        waits_inside: Whether each call waits for the device. If so, calls cannot be queued.
    """

    method: Method
    device: Sampled | None
    span: Spread | None
    anatomy: DeviceOps | None
    notes: tuple[str, ...] = ()
    floor_ns: float = 0.0  # the shortest time that this method can measure
    waits_inside: bool = False  # whether each call waits for the device, so that none can be queued


def observer_for(adapter: Adapter, method: str) -> tuple[DeviceObserver | None, str | None]:
    """Returns `(observer, reason)`: an object that finds the ops of calls, or None and the reason
    why there is none.

    Both are None if `method` needs no observer, or if this kind of device has no observer. `method`
    is "auto", "cupti", "events", "model" or "host".

    Raises:
        UsageError: `method` is for another kind of device, or is not the name of a method.
        UnstallError: `method` is "cupti", but CUPTI does not work on this machine.
    """
    if method not in ("auto", "cupti", "events", "model", "host"):
        raise UsageError(f'method={method!r} is none of "auto", "cupti", "events", "model" and "host"')
    if method == "model" and not adapter.virtual:
        raise UsageError('method="model" is for the virtual GPU')
    if adapter.virtual and method == "cupti":
        raise UsageError('method="cupti" is for real devices: the virtual GPU tells by method="model"')
    if adapter.virtual and method in ("auto", "model"):
        from unstall.measuring.device_time.by_model import ByModel

        return ByModel(), None
    if method not in ("auto", "cupti") or not adapter.is_cuda:
        if method == "cupti":
            raise UsageError(f'method="cupti" is for CUDA devices, and this is {adapter.name}')
        return None, None
    try:
        from unstall.measuring.device_time.by_cupti import ByCupti

        return ByCupti(places=True), None
    except UnstallError as error:
        if method == "cupti":
            raise
        return None, str(error)


def device_time(caching: Caching, adapter: Adapter, method: str, each_ns: float, until: Until) -> DeviceTime:
    """Measures the device time of a function.

    Args:
        caching: Makes the calls, with a defined state of the caches.
        adapter: The adapter for the framework and the device of the function.
        method: How to measure: "auto", "cupti", "events", "model" or "host".
        each_ns: The approximate time of one call in ns.
        until: When to stop sampling.

    Raises:
        UsageError: `method` does not work on this device or with this framework.
    """
    observer, why = observer_for(adapter, method)
    if observer is not None:
        try:
            return _observed(observer, caching, adapter, each_ns, until)
        except UnstallError as error:
            if method not in ("auto",):
                raise
            why = str(error)
    notes = (f"no records of the device: {why}",) if why else ()
    adapter.synchronize()
    if adapter.event() is None:
        if method == "events":
            raise UsageError(f"{adapter.name} has no events that tell the time")
        return DeviceTime("host", None, None, None, (*notes, f"{adapter.name} tells no device time"))
    return _by_events(caching, adapter, each_ns, notes, until)


def _observed(observer: DeviceObserver, caching: Caching, adapter: Adapter, each_ns: float, until: Until) -> DeviceTime:
    anatomy = observer.observe(caching.run, _looked_at(until), adapter, caching.flushed)
    if not len(anatomy.call):
        return DeviceTime(observer.method, None, None, anatomy)
    spans: list[np.ndarray] = []
    there: np.ndarray = np.zeros(0)
    if until.brief or adapter.virtual:  # looking for lines does not change the times, or there is no time
        there = anatomy.busy_ns()
        spans.append(anatomy.span_ns())
    if observer.method == "cupti":
        from unstall.measuring.device_time.by_cupti import ByCupti

        observer = ByCupti()

    def take(count: int) -> np.ndarray:
        seen = observer.observe(caching.run, count, adapter, caching.flushed)
        spans.append(seen.span_ns())
        return seen.busy_ns()

    first = (
        LEAST - len(there)
        if adapter.virtual
        else int(max(LEAST, min(_FIRST, 0.5e9 * until.seconds / max(each_ns, 1.0))))
    )
    sampled = sample_until(take, until, first=until.affords(first, until.least(len(there))), there=there)
    return DeviceTime(observer.method, sampled, Spread.of(np.concatenate(spans)), anatomy)


def _looked_at(until: Until) -> int:
    if until.brief:
        return FEWEST if until.alike else 1
    return until.affords(_LOOKED_AT, 1)


def _by_events(caching: Caching, adapter: Adapter, each_ns: float, notes: tuple[str, ...], until: Until) -> DeviceTime:
    events = ByEvents(adapter, 1) if until.brief else ByEvents(adapter)
    before = caching.before if caching.cache == "cold" else None
    first = int(max(10, min(_FIRST, 0.3e9 * until.seconds / max(each_ns, 1.0))))
    try:
        began = time.monotonic()
        if until.brief:
            first = until.affords(LEAST, 1)
            less = EventOverhead(events.offset_ns, "device time by events holds the gaps between a call's kernels")
        else:
            for _ in range(2):
                events.take(caching.run, min(first, 10), before)
            less = event_overhead(events, caching.same, _ADDED * until.seconds)
        left = replace(until, seconds=max(_ADDED * until.seconds, until.seconds - (time.monotonic() - began)))
        spans: list[NDArray[np.float64]] = []

        def take(count: int) -> NDArray[np.float64]:
            raw = events.take(caching.run, count, before)
            spans.append(np.maximum(raw - min(events.offset_ns, less.ns), 0.0))
            return np.maximum(raw - less.ns, 0.0)

        sampled = sample_until(take, left, first=first)
    except QueueError:
        sampled = sample_until(
            lambda count: _one_by_one(events, caching, adapter, count), until, first=until.affords(LEAST, 1)
        )
        waited = "each call waits for the device, so that device time by events holds the host's time between"
        return DeviceTime("events", sampled, sampled.spread, None, (*notes, waited), events.floor_ns, True)
    if less.note:
        notes = (*notes, less.note)
    if not events.blocked:
        notes = (*notes, "the device could not be held back while its queue was filled: gaps may be counted")
    return DeviceTime("events", sampled, Spread.of(np.concatenate(spans)), None, notes, events.floor_ns)


def _one_by_one(events: ByEvents, caching: Caching, adapter: Adapter, count: int) -> list[float]:
    """Takes `count` samples of single calls, by one event before and one event after each call. The
    host waits for each call, so no calls are queued.
    """
    offset, samples = events.offset_ns, []
    for _ in range(count):
        caching.before()
        first = adapter.event()
        caching.run()
        last = adapter.event()
        adapter.synchronize()
        samples.append(max(0.0, adapter.between_ns(first, last) - offset))
    return samples
