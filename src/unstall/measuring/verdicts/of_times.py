"""Verdicts on the times of a measurement: what bounds them, whether they are stable, and whether they are too short."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unstall.measuring.measurement import Verdict
from unstall.measuring.sampling import LEAST
from unstall.measuring.statistics import Spread
from unstall.measuring.verdicts.evidence import Evidence, ns_text

_CLEARLY = 1.1  # the longer of two times must be this many times the shorter
_DRIFT = 0.05  # relative change that counts
_LEAST_FOR_DRIFT = 30  # samples
_WIDE = 0.05  # an interval this wide, relative to the median, is serious
_UNLIKE, _UNLIKE_HERE = 0.25, 0.5  # interquartile range over the median: on a device, on a shared host
_ONE_IN, _RARE, _RARE_HERE = 20, 1.5, 3.0  # one call in so many takes this many times the median
_DEARER = 1.25  # back to back, a call should not take this many times what it takes alone
_FIRST = ((3.0, 100_000), (100.0, 50_000))  # (times a usual call, ns more) that make a first call stand out
_FLOORS = 1.5  # times the shortest time that can be measured
_LAUNCHING = 0.5  # of the host's time: launches alone take that much of the device
_EMPTY_CALLS = 2.0


def bound(seen: Evidence) -> Iterable[Verdict]:
    busy, host = seen.device_ns, seen.host.median
    if not busy or seen.waits or seen.inspection.later or not host:
        return
    if host > _CLEARLY * busy:
        back = f"; back to back, a call ends every {ns_text(seen.throughput.median)}" if seen.throughput else ""
        text = f"the device works {ns_text(busy)} per call, and the host needs {ns_text(host)} to launch it{back}"
        yield Verdict("launch-bound", text)
    elif busy > _CLEARLY * host:
        text = f"the device works {ns_text(busy)} per call, and the host is done after {ns_text(host)}"
        yield Verdict("device-bound", text)


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
    drift, spread = _drift(seen), seen.main
    if drift is not None:
        longer = "longer" if drift > 0 else "shorter"
        text = f"the last samples are {100 * abs(drift):.0f} % {longer} than the first: calls differ"
        yield Verdict("not converged", text, serious=True)
    elif spread.iqr > (_UNLIKE_HERE if seen.device_ns is None else _UNLIKE) * spread.median:
        text = f"calls differ: half of them take between {ns_text(spread.q1)} and {ns_text(spread.q3)}"
        yield Verdict("not converged", text, serious=True)
    elif seen.asynchronous and seen.throughput and seen.throughput.low > _DEARER * seen.wall.high:
        back, alone = ns_text(seen.throughput.median), ns_text(seen.wall.median)
        text = f"calls differ: back to back they take {back}, alone {alone}"
        yield Verdict("not converged", text, serious=True)
    elif (much := _rare(spread, on_device=seen.device_ns is not None)) is not None:
        text = f"calls differ: one in {_ONE_IN} takes {ns_text(much)} or more, so the mean is {ns_text(spread.mean)}"
        yield Verdict("not converged", text, serious=seen.device_ns is not None)
    elif not seen.converged and not spread.is_bounded:
        wide = spread.n == 1 or spread.high - spread.low > 2 * _WIDE * spread.median
        yield Verdict("not converged", f"{seen.stopped}: give it more time", serious=wide)
    elif not seen.converged:
        text = f"{seen.stopped}: give it more time, or a quieter machine"
        yield Verdict("not converged", text, serious=spread.n < LEAST or spread.relative_ci > _WIDE)
    elif spread.relative_ci > _WIDE:
        text = f"{seen.stopped}: calls differ"
        yield Verdict("not converged", text, serious=True)


def first_call(seen: Evidence) -> Iterable[Verdict]:
    usual = seen.wall.median
    if seen.compiled_first or any(seen.first_call_ns > times * usual + ns for times, ns in _FIRST):
        why = ", since it compiled" if seen.compiled_first else ""
        text = (
            f"the first call took {ns_text(seen.first_call_ns)}{why}, and is left out; later ones take {ns_text(usual)}"
        )
        yield Verdict("first call differs", text)
    if seen.compiled_later:
        text = "something was compiled while calls were timed: the samples include that"
        yield Verdict("first call differs", text, serious=True)


def too_short(seen: Evidence) -> Iterable[Verdict]:
    busy = seen.device_ns
    if seen.device and seen.device.method == "events" and busy is not None:
        floor = seen.device.floor_ns
        if busy < _FLOORS * floor:
            text = f"an empty kernel takes {ns_text(floor)} by events, and this {ns_text(busy)}: it may be much shorter"
            yield Verdict("too short to resolve", text, serious=True)
        elif busy < _LAUNCHING * seen.host.median and not seen.waits:
            text = f"launches may take most of the {ns_text(busy)} between the events: the kernels may be much shorter"
            yield Verdict("too short to resolve", text, serious=True)
    elif not seen.asynchronous and seen.wall.median < _EMPTY_CALLS * seen.empty_call_ns:
        text = f"an empty function takes {ns_text(seen.empty_call_ns)}, and this one {ns_text(seen.wall.median)}"
        yield Verdict("too short to resolve", text, serious=True)


def other_threads(seen: Evidence) -> Iterable[Verdict]:
    if seen.virtual and seen.device_ns and not seen.host.median:
        text = (
            "threads other than the calling one launch the work, and each has its own virtual clock: host, wall and "
            "throughput leave their time out"
        )
        yield Verdict("other threads", text, serious=True)


def _drift(seen: Evidence) -> float | None:
    """Returns by how much the median changed from the first third of the samples to the last third,
    as a fraction. Returns None if noise can explain the change.
    """
    spread = seen.main
    third = spread.n // 3
    if spread.n < _LEAST_FOR_DRIFT:
        return None
    first, last = Spread.of(spread.samples[:third]), Spread.of(spread.samples[-third:])
    apart = last.low > first.high or last.high < first.low
    change = last.median / first.median - 1 if first.median else 0.0
    return change if apart and abs(change) > _DRIFT else None


def _rare(spread: Spread, *, on_device: bool) -> float | None:
    """Returns the time in ns that one in 20 calls exceeds. Returns None if this time is not much above the median."""
    if spread.n < 2 * _ONE_IN:
        return None
    slow = float(np.quantile(spread.samples, 1 - 1 / _ONE_IN))
    return slow if slow > (_RARE if on_device else _RARE_HERE) * spread.median else None
