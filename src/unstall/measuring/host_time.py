"""Measures host times: the time until a call returns, the time until the call's results are ready,
and the time per call when many calls directly follow each other.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters import Adapter
from unstall.measuring.cache import Caching
from unstall.measuring.calls.system_memory import page_faults_so_far
from unstall.measuring.exact_times import shares_of_few, shares_of_many
from unstall.measuring.sampling import FEWEST, LEAST, Sampled, Until, sample_until
from unstall.measuring.statistics import Spread

_SAMPLE_NS = 100_000  # a sample of what is shorter holds several calls: some thousand times a clock's own cost
_MOST_LOOPS = 1 << 16
_BATCH_NS = 2_000_000
_MOST_IN_BATCH = 1_000
_LEAST_IN_BATCH = 8
_BATCHES = 5


def _reading_ns(clock: Callable[[], int]) -> int:
    """Returns how many ns one reading of the clock takes, measured by this clock."""
    return int(np.median([-(clock() - clock()) for _ in range(64)]))


class Alone:
    """Times calls of a function, one call at a time, on an idle device. To call this object is to
    call the function once.

    Attributes:
        host: For each call, the ns until the call returned.
        wall: For each call, the ns until the call's results were ready.
        page_faults: The minor page faults of the last call.
        machine_s: The seconds that the last call took, by the machine's clock.
    """

    def __init__(self, run: Callable[[], object], adapter: Adapter) -> None:
        self.host: list[int] = []
        self.wall: list[int] = []
        self.page_faults = 0.0
        self.machine_s = 0.0
        self._run, self._adapter = run, adapter
        self._cost = _reading_ns(adapter.clock)

    def __call__(self) -> object:
        """Makes one call and waits for its result. Measures the time until the call returns and the time until the
        result is ready. Returns the result.
        """
        adapter, run, clock = self._adapter, self._run, self._adapter.clock
        adapter.synchronize()
        faults, machine_began = page_faults_so_far(), time.monotonic()
        began = clock()
        result = run()
        returned = clock()
        adapter.wait(result)
        done = clock()
        self.machine_s = time.monotonic() - machine_began
        self.page_faults = page_faults_so_far() - faults
        self.host.append(max(0, returned - began - self._cost))
        self.wall.append(max(0, done - began - 2 * self._cost))
        return result


def synchronised(
    caching: Caching, adapter: Adapter, until: Until, there: Alone | None = None
) -> tuple[Spread, Sampled]:
    """Measures single calls on an idle device. Returns `(host, wall)`: the times until calls
    return, and the times until the calls' results are ready.

    Args:
        caching: Makes the calls, with a defined state of the caches.
        adapter: The adapter for the framework and the device of the calls.
        until: When to stop sampling.
        there: Times of earlier calls. They are included in the result.
    """
    alone = Alone(caching.run, adapter)

    def take(count: int) -> list[int]:
        for _ in range(count):
            caching.flushed()
            alone()
        return alone.wall[-count:]

    if there is not None:
        alone.host[:], alone.wall[:] = there.host, there.wall
    elif not until.brief:
        take(1)
        alone.host.clear()
        alone.wall.clear()
    known = list(alone.wall)
    sampled = sample_until(take, until, first=until.affords(LEAST, until.least(len(known))), there=known)
    return Spread.of(alone.host), sampled


def by_itself(
    caching: Caching, adapter: Adapter, until: Until, *, single: bool = False, there: Sequence[int] = ()
) -> Sampled:
    """Returns samples of the time of calls that return only after their work is done.

    If calls are short, a sample is the mean of several calls. But each sample is one call if the
    cache is cold, if `single` is set, or if `there` is not empty.

    Args:
        caching: Makes the calls, with a defined state of the caches.
        adapter: The adapter for the framework of the calls.
        until: When to stop sampling.
        single: Whether each sample must be one call.
        there: Times of earlier calls, in ns. They are included in the result.
    """
    run, clock = adapter.until_done(caching.run), adapter.clock
    single = single or bool(there) or 1e9 * until.each_s > 2 * _SAMPLE_NS
    loops = 1 if single or caching.cache == "cold" else _loops(run)
    cost = _reading_ns(clock)

    def take(count: int) -> NDArray[np.float64]:
        samples = np.zeros(count)
        for number in range(count):
            caching.flushed()
            if loops == 1:
                began = clock()
                run()
                samples[number] = clock() - began - cost
            else:
                samples[number] = _timed(run, loops, clock) / loops
        return np.maximum(samples, 0.0)

    return sample_until(take, until, first=until.affords(LEAST, until.least(len(there))), there=there)


def empty_call_ns(adapter: Adapter) -> float:
    """Returns the time in ns that a measurement gives for a function that does nothing. A shorter
    time cannot be distinguished from it.
    """
    loops = 1_000
    return min(_timed(_nothing, loops, adapter.clock) / loops for _ in range(5))


def back_to_back(caching: Caching, adapter: Adapter, each_ns: float, until: Until) -> Sampled:
    """Returns samples of the time per call when calls directly follow each other. Makes calls in
    batches, and waits once per batch.

    The caches are not flushed between calls. `each_ns` is the approximate time of one call in ns.
    """
    run, clock = caching.run, adapter.clock

    def batch(count: int) -> int:
        adapter.synchronize()
        result: object = None
        began = clock()
        for _ in itertools.repeat(None, count):
            result = run()
        adapter.wait(result)
        return clock() - began

    if adapter.virtual:
        shares = shares_of_few if until.brief else shares_of_many
        few = replace(until, alike=FEWEST) if until.alike else until  # each is of many calls
        return sample_until(lambda wanted: shares(batch, wanted), few, first=FEWEST)
    least, batches = (2, 1) if until.brief else (_LEAST_IN_BATCH, 2)
    count = int(min(_MOST_IN_BATCH, max(least, _BATCH_NS / max(each_ns, 1.0))))
    first = until.affords(_BATCHES * count, batches * count) // count
    return sample_until(lambda wanted: [batch(count) / count for _ in range(wanted)], until, first=first)


def _loops(run: Callable[[], object]) -> int:
    """Returns how many calls of `run` together take at least 100 µs.

    Uses the machine's clock, because a virtual GPU's clock may not advance.
    """
    loops = 1
    while True:
        took = _timed(run, loops, time.monotonic_ns)
        if took >= _SAMPLE_NS or loops >= _MOST_LOOPS:
            return loops
        loops = min(_MOST_LOOPS, max(2 * loops, int(1.2 * loops * _SAMPLE_NS / max(took, 1))))


def _timed(run: Callable[[], object], loops: int, clock: Callable[[], int]) -> int:
    forever = itertools.repeat(None, loops)
    began = clock()
    for _ in forever:
        run()
    return clock() - began


def _nothing() -> None:
    pass
