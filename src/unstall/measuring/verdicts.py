"""What was seen → verdicts: one function a kind, each from the evidence alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from unstall.figures import counted, duration, size
from unstall.measuring.clocks import Reading
from unstall.measuring.device_time import DeviceTime
from unstall.measuring.look import Look
from unstall.measuring.look_verdicts import of_look
from unstall.measuring.measurement import Cache, Verdict
from unstall.measuring.observed import Observed
from unstall.measuring.sampling import LEAST
from unstall.measuring.statistics import Spread
from unstall.measuring.wording import names_of
from unstall.timeline.columns import CopyDirection

_CLEARLY = 1.1  # more, of two times that bound each other
_DRIFT = 0.05
_LEAST_FOR_DRIFT = 30
_WIDE = 0.05  # of the median, its interval
_UNLIKE, _UNLIKE_HERE = 0.25, 0.5  # of the median, the middle half of the samples: on a device, on a host with others
_ONE_IN, _RARE, _RARE_HERE = 20, 1.5, 3.0  # times the median, what one call in so many takes
_DEARER = 1.25  # times a call alone, which is more than one of many can be
_FIRST = ((3.0, 100_000), (100.0, 50_000))  # as many usual calls and ns more
_FLOORS = 1.5  # as many of the least that can be measured
_LAUNCHING = 0.5  # of the host's time: what launches of kernels that take no time take of the device
_EMPTY_CALLS = 2.0
_EXTRA_BYTES = 1 << 20
_GROWN_BYTES = 16 << 20
_FAULTS = 64  # of 4 KiB each: 256 KiB


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """All that verdicts are made of. Times in ns."""

    asynchronous: bool
    virtual: bool = False
    framework: str
    has_current_stream: bool
    cache: Cache
    cache_bytes: int
    host: Spread
    wall: Spread
    throughput: Spread | None
    device: DeviceTime | None
    look: Look
    converged: bool
    stopped: str
    first_call_ns: int
    compiled_first: bool
    compiled_later: bool
    empty_call_ns: float
    page_faults: float
    grown_bytes: int = 0  # the process, while calls were timed
    before: Reading | None
    after: Reading | None
    sync_lines: tuple[str, ...]
    gpu_is_there: bool

    @property
    def observed(self) -> Observed | None:
        return self.device.anatomy if self.device else None

    @property
    def device_ns(self) -> float | None:
        return self.device.device.spread.median if self.device and self.device.device else None


def verdicts(evidence: Evidence) -> tuple[Verdict, ...]:
    """Those that hold, serious ones first."""
    found = [
        *(verdict for rule in _RULES for verdict in rule(evidence)),
        *of_look(evidence.look, virtual=evidence.virtual),
    ]
    return tuple(sorted(found, key=lambda verdict: not verdict.serious))


def bound(seen: Evidence) -> Iterable[Verdict]:
    busy, host = seen.device_ns, seen.host.median
    if not busy or _waits(seen) or seen.look.later or not host:
        return
    if host > _CLEARLY * busy:
        back = f"; back to back, a call ends every {_ns(seen.throughput.median)}" if seen.throughput else ""
        text = f"the device is at work for {_ns(busy)} of a call, and the host needs {_ns(host)} to launch it{back}"
        yield Verdict("launch-bound", text)
    elif busy > _CLEARLY * host:
        text = f"the device is at work for {_ns(busy)}, the host is done after {_ns(host)}"
        yield Verdict("device-bound", text)


def sync_inside(seen: Evidence) -> Iterable[Verdict]:
    observed = seen.observed
    if observed is not None and observed.waits:
        each = len(observed.waits) / observed.calls
        ns = sum(wait.ns for wait in observed.waits) / observed.calls
        text = (
            f"the call waits for the device {_times(each)}, for {_ns(ns)}: host time holds that, and nothing overlaps"
        )
        yield Verdict("sync inside", text, _most(wait.place for wait in observed.waits), serious=True)
    elif observed is None and (seen.sync_lines or (seen.device and seen.device.waits_inside)):
        text = "the call waits for the device: host time holds that, and nothing overlaps"
        yield Verdict("sync inside", text, next(iter(seen.sync_lines), None), serious=True)


def copies_inside(seen: Evidence) -> Iterable[Verdict]:
    observed = seen.observed
    if observed is None:
        return
    for direction, where in (
        (CopyDirection.HOST_TO_DEVICE, "from the host"),
        (CopyDirection.DEVICE_TO_HOST, "to the host"),
    ):
        rows = np.flatnonzero(observed.direction == direction)
        if len(rows):
            moved = int(observed.bytes[rows].sum()) // observed.calls
            ns = float((observed.end - observed.start)[rows].sum()) / observed.calls
            times = _times(len(rows) / observed.calls)
            text = f"the call copies {where} {times}: {size(max(0, moved))}, {_ns(ns)} of its device time"
            yield Verdict("copies inside", text, _most(observed.place[row] for row in rows.tolist()), serious=True)


def escapes(seen: Evidence) -> Iterable[Verdict]:
    observed = seen.observed
    streams = observed.escaped_streams() if observed is not None and seen.has_current_stream else set()
    if observed is None or not streams:
        return
    rows = np.flatnonzero(np.isin(observed.stream, list(streams)))
    ns = float((observed.end - observed.start)[rows].sum()) / observed.calls
    text = (
        f"{_ns(ns)} of the call's work is on another stream, which its own stream does not wait for: "
        "events around the call do not see it, and its results may be read too early"
    )
    yield Verdict("escapes to another stream", text, _most(observed.place[row] for row in rows.tolist()), serious=True)


def throttled(seen: Evidence) -> Iterable[Verdict]:
    before, after = seen.before, seen.after
    if before is None or after is None:
        return
    reasons = after.reasons  # those before may be of other work
    fell = after.mhz < (1 - _DRIFT) * before.mhz
    if reasons:
        text = (
            f"the device's clock was held down by {' and '.join(reasons)}: {before.mhz} MHz before, {after.mhz} after"
        )
        yield Verdict("throttled", f"{text}, of {after.highest_mhz}", serious=True)
    elif fell and _drift(seen) is not None:
        yield Verdict("throttled", f"the device's clock fell from {before.mhz} to {after.mhz} MHz", serious=True)


def not_converged(seen: Evidence) -> Iterable[Verdict]:
    drift, spread = _drift(seen), _main(seen)
    if drift is not None:
        longer = "longer" if drift > 0 else "shorter"
        text = f"the last samples are {100 * abs(drift):.0f} % {longer} than the first: calls are not alike"
        yield Verdict("not converged", text, serious=True)
    elif spread.iqr > (_UNLIKE_HERE if seen.device_ns is None else _UNLIKE) * spread.median:
        text = f"calls are not alike: half of them take from {_ns(spread.q1)} to {_ns(spread.q3)}"
        yield Verdict("not converged", text, serious=True)
    elif seen.asynchronous and seen.throughput and seen.throughput.low > _DEARER * seen.wall.high:
        text = (
            f"calls are not alike: back to back they take {_ns(seen.throughput.median)}, alone {_ns(seen.wall.median)}"
        )
        yield Verdict("not converged", text, serious=True)
    elif (much := _rare(spread, on_device=seen.device_ns is not None)) is not None:
        text = (
            f"calls are not alike: one in {_ONE_IN} takes {_ns(much)} or more, so that they take {_ns(spread.mean)} on "
            "average"
        )
        yield Verdict("not converged", text, serious=seen.device_ns is not None)
    elif not seen.converged and not spread.is_bounded:
        wide = spread.n == 1 or spread.high - spread.low > 2 * _WIDE * spread.median
        yield Verdict("not converged", f"{seen.stopped}: give it more time", serious=wide)
    elif not seen.converged:
        text = f"{seen.stopped}: give it more time, or a quieter machine"
        yield Verdict("not converged", text, serious=spread.n < LEAST or spread.relative_ci > _WIDE)
    elif spread.relative_ci > _WIDE:
        text = f"{seen.stopped}: calls are not alike"
        yield Verdict("not converged", text, serious=True)


def first_call(seen: Evidence) -> Iterable[Verdict]:
    usual = seen.wall.median
    if seen.compiled_first or any(seen.first_call_ns > times * usual + ns for times, ns in _FIRST):
        why = ", as it was compiled" if seen.compiled_first else ""
        text = f"the first call took {_ns(seen.first_call_ns)}{why}, and is kept out; later ones take {_ns(usual)}"
        yield Verdict("first call differs", text)
    if seen.compiled_later:
        text = "something was compiled while calls were timed: samples hold that"
        yield Verdict("first call differs", text, serious=True)


def too_short(seen: Evidence) -> Iterable[Verdict]:
    busy = seen.device_ns
    if seen.device and seen.device.method == "events" and busy is not None:
        floor = seen.device.floor_ns
        if busy < _FLOORS * floor:
            text = f"next to no work takes {_ns(floor)} by events, and this {_ns(busy)}: it may be much shorter"
            yield Verdict("too short to resolve", text, serious=True)
        elif busy < _LAUNCHING * seen.host.median and not _waits(seen):
            text = f"launches alone may take most of the {_ns(busy)} between events: the kernels may be much shorter"
            yield Verdict("too short to resolve", text, serious=True)
    elif not seen.asynchronous and seen.wall.median < _EMPTY_CALLS * seen.empty_call_ns:
        text = f"a function that does nothing takes {_ns(seen.empty_call_ns)}, and this one {_ns(seen.wall.median)}"
        yield Verdict("too short to resolve", text, serious=True)


def allocates(seen: Evidence) -> Iterable[Verdict]:
    observed, extra = seen.observed, seen.look.extra_bytes
    if observed is not None and observed.taken:
        names = ", ".join(dict.fromkeys(each.what for each in observed.taken))
        times = _times(len(observed.taken) / observed.calls)
        text = f"the call asks the driver for memory or gives it back {times} ({names}), which waits for the device"
        yield Verdict("allocates", text, _most(each.place for each in observed.taken), serious=True)
    elif seen.look.from_driver:
        text = (
            f"the call makes the allocator ask the driver {_times(seen.look.from_driver)}, which waits for the device"
        )
        yield Verdict("allocates", text, serious=True)
    elif extra is not None and extra >= _EXTRA_BYTES:
        yield Verdict("allocates", f"the call takes {size(extra)} beyond its result, which the allocator has at hand")
    elif not seen.asynchronous and seen.page_faults >= _FAULTS:
        faults = counted(round(seen.page_faults), "page fault")
        yield Verdict("allocates", f"the call takes fresh memory of the system each time: {faults}, and zeroing it")


def unused(seen: Evidence) -> Iterable[Verdict]:
    look = seen.look
    if (
        not look.result_none
        or look.gradients
        or look.written
        or look.changed
        or look.replaced
        or look.resized
        or not look.inputs
        or seen.framework == "Python"
    ):
        return
    if seen.framework == "JAX":
        text = (
            "the call returns nothing, and JAX's work can only be waited for by its results: it may be under way still"
        )
        yield Verdict("result unused", text, serious=True)
    else:
        text = "the call returns nothing and changes none of its inputs: whoever compiles it may leave its work out"
        yield Verdict("result unused", text, serious=seen.compiled_first)


def keeps_memory(seen: Evidence) -> Iterable[Verdict]:
    kept = seen.look.kept_bytes
    if kept:
        text = f"each call leaves {size(kept)} taken when its result is gone: calls find less and less memory"
        yield Verdict("keeps memory", text, serious=True)
    elif seen.grown_bytes >= _GROWN_BYTES:
        text = f"the process grew by {size(seen.grown_bytes)} while calls were timed: they keep what they take"
        yield Verdict("keeps memory", text, serious=True)


def stale_graph(seen: Evidence) -> Iterable[Verdict]:
    observed = seen.observed
    if observed is None or not observed.graph.any():
        return
    for number in range(observed.calls):
        rows = np.flatnonzero(observed.call == number)
        rows = rows[np.argsort(observed.start[rows], kind="stable")]
        if len(rows) and not observed.graph[rows[0]]:
            return
    rows = np.flatnonzero(observed.graph)
    text = (
        "the call replays a CUDA graph and writes nothing to its inputs before: it computes what it computed "
        "last time, and the copy that a real call needs is not timed"
    )
    yield Verdict("stale graph input", text, _most(observed.place[row] for row in rows.tolist()), serious=True)


def other_threads(seen: Evidence) -> Iterable[Verdict]:
    if seen.virtual and seen.device_ns and not seen.host.median:
        text = (
            "the work is launched by others than the calling thread, each by a virtual clock of its own: host, wall "
            "and throughput leave out what they do"
        )
        yield Verdict("other threads", text, serious=True)


def cpu_tensor(seen: Evidence) -> Iterable[Verdict]:
    here = [array for array in seen.look.on("cpu") if _elements(array.value) > 1]
    if seen.asynchronous and here:
        names = names_of([array.name for array in here])
        held = size(sum(array.bytes for array in here))
        text = f"{names} is in the host's memory ({held}): the device has to be sent it"
        yield Verdict("CPU tensor", text, serious=True)
    elif not seen.asynchronous and seen.framework == "torch" and seen.gpu_is_there and here:
        names = names_of([array.name for array in here])
        text = f"{names} is on the CPU, and so is the work: the GPU has no part in it"
        yield Verdict("CPU tensor", text, serious=True)


def warm_cache(seen: Evidence) -> Iterable[Verdict]:
    touched = seen.look.input_bytes + seen.look.result_bytes
    if seen.virtual:  # its model knows of no caches
        return
    if seen.asynchronous and seen.cache == "hot" and 0 < touched <= seen.cache_bytes:
        text = (
            f"inputs and results ({size(touched)}) fit the L2 ({size(seen.cache_bytes)}) and stay there between calls"
        )
        yield Verdict("warm L2", text, serious=True)


_RULES: tuple[Callable[[Evidence], Iterable[Verdict]], ...] = (
    bound,
    sync_inside,
    copies_inside,
    escapes,
    throttled,
    not_converged,
    first_call,
    too_short,
    allocates,
    keeps_memory,
    unused,
    stale_graph,
    other_threads,
    cpu_tensor,
    warm_cache,
)


def _waits(seen: Evidence) -> bool:
    return bool(
        (seen.observed is not None and seen.observed.waits)
        or (seen.device is not None and seen.device.waits_inside)
        or seen.sync_lines
    )


def _main(seen: Evidence) -> Spread:
    return seen.device.device.spread if seen.device and seen.device.device else seen.wall


def _drift(seen: Evidence) -> float | None:
    """By how much the last third of the samples is longer than the first, where noise does not explain it."""
    spread = _main(seen)
    third = spread.n // 3
    if spread.n < _LEAST_FOR_DRIFT:
        return None
    first, last = Spread.of(spread.samples[:third]), Spread.of(spread.samples[-third:])
    apart = last.low > first.high or last.high < first.low
    change = last.median / first.median - 1 if first.median else 0.0
    return change if apart and abs(change) > _DRIFT else None


def _rare(spread: Spread, *, on_device: bool) -> float | None:
    """What the slowest of so many calls takes at least, where that is much more than what most take."""
    if spread.n < 2 * _ONE_IN:
        return None
    slow = float(np.quantile(spread.samples, 1 - 1 / _ONE_IN))
    return slow if slow > (_RARE if on_device else _RARE_HERE) * spread.median else None


def _elements(value: object) -> int:
    shape = getattr(value, "shape", ())
    return int(np.prod(tuple(shape), dtype=np.int64))


def _most(places: Iterable[str | None]) -> str | None:
    """The place that is named most often."""
    named = [place for place in places if place is not None]
    return max(dict.fromkeys(named), key=named.count, default=None)


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:.3g} times"


def _ns(ns: float) -> str:
    return duration(round(ns))
