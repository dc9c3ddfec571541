"""Chooses which time of functions to compare, if the caller did not choose one. Gives the reason
for the choice.

The time on the device shows which kernel is better. It does not show the cost of a host-bound
function: a CUDA graph saves host time, not device time. In a program, calls follow each other
without a gap, so their throughput matters. If any function is launch-bound or does not use the
device, all functions are compared by throughput. If none is, all functions are compared by the time
on the device, which is free of the host's noise. All inputs of a table are compared by the same
time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.errors import UsageError
from unstall.measuring.adapters import Adapter, on_the_host
from unstall.measuring.cache import Caching
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.comparing.turns import By, back_to_back, device_take
from unstall.measuring.measurement import Cache
from unstall.measuring.wording import names_of, percent, precise

_PAID = "by throughput, what a program pays"
_LAUNCH_BOUND = 1.3  # times the device's time
_BATCH, _SMALL_BATCH = 8, 2
_BATCHES = 3
_SECONDS = 0.3  # for one function
_TRIED = 3


@dataclass(frozen=True, slots=True)
class Probe:
    """A quick measurement of one function.

    Attributes:
        name: The function's name.
        device_ns: The time in ns that the device works for one call.
        call_ns: The time per call in ns when many calls directly follow each other.
    """

    name: str
    device_ns: float
    call_ns: float

    @property
    def is_launch_bound(self) -> bool:
        return self.call_ns > _LAUNCH_BOUND * self.device_ns > 0


@dataclass(frozen=True, slots=True)
class TimeChoice:
    """Which time of functions to compare, and why.

    Attributes:
        by: The time: "device", "wall" or "throughput".
        because: The reason for an automatic choice, or "".
        adapter: The adapter to measure with. If no function uses a device, it is an adapter for the
            host.
    """

    by: By
    because: str
    adapter: Adapter


def choose(
    calls: Sequence[Mapping[str, FunctionCall]],
    adapter: Adapter,
    cache: Cache | Literal["auto"],
    *,
    brief: bool = False,
) -> TimeChoice:
    """Measures each function quickly, and chooses which time to compare.

    Args:
        calls: For each input, the functions by name.
        adapter: The adapter for the functions' arrays.
        cache: The cache state that the caller asked for.
        brief: Whether to make as few calls as possible.

    Raises:
        UsageError: The device is a virtual GPU, and some of the functions use it while others do
            not.
    """
    if not adapter.asynchronous:
        return TimeChoice("wall", "", adapter)
    try:
        probes = [probe for each in calls for probe in probed(each, adapter, cache, brief=brief)]
    except UsageError as error:
        return TimeChoice("throughput", f"{_PAID}, since there is no device time: {error}", adapter)
    idle = list(dict.fromkeys(probe.name for probe in probes if not probe.device_ns))
    if len(idle) == len({probe.name for probe in probes}):
        host = on_the_host(adapter.framework == "torch")
        return TimeChoice("wall", "by the time of a call, since none works on the device", host)
    has = "has" if len(idle) == 1 else "have"
    if idle and adapter.virtual:
        raise UsageError(
            f"{names_of(idle)} {has} no work on the virtual GPU, whose clock does not count what the host alone does: "
            "such functions and others can only be compared where there is a GPU"
        )
    if idle:
        return TimeChoice("throughput", f"{_PAID}, since {names_of(idle)} {has} no work on the device", adapter)
    bound = launch_bound(probes)
    if bound and cache != "cold":
        return TimeChoice("throughput", f"{_PAID}, since {bound}", adapter)
    return TimeChoice("device", "by the device's time, since none is launch-bound" if not bound else "", adapter)


def usual_cache(by: By, adapter: Adapter) -> Cache:
    """Returns the cache state to use if the caller chose none: "cold" if the time on the device is
    measured and the cache's size is known, and "hot" if not.
    """
    return "cold" if by == "device" and adapter.cache_bytes else "hot"


def probed(
    calls: Mapping[str, FunctionCall], adapter: Adapter, cache: Cache | Literal["auto"], *, brief: bool = False
) -> list[Probe]:
    """Measures each function quickly. Returns, for each function, the time that the device works
    for one call, and the time per call if calls directly follow each other.

    Args:
        calls: The functions by name.
        adapter: The adapter for the functions' arrays.
        cache: The cache state that the caller asked for.
        brief: Whether to make as few calls as possible.

    Raises:
        UsageError: Device times cannot be measured on this device.
    """
    kept = usual_cache("device", adapter) if cache == "auto" else cache
    candidates = [Caching(call, kept, adapter) for call in calls.values()]
    take = device_take(candidates, adapter)
    for _ in range(0 if brief else _TRIED - 1):
        take(range(len(candidates)))
    device = np.asarray(take(range(len(candidates))), np.float64).tolist()
    batch = _SMALL_BATCH if brief else _BATCH
    return [probe(name, call, adapter, busy, batch) for (name, call), busy in zip(calls.items(), device, strict=True)]


def launch_bound(probes: Iterable[Probe]) -> str:
    """Returns a sentence that names the launch-bound functions, or "" if none is launch-bound.

    If a function was measured at several inputs, the sentence is about the input at which the
    device works for the smallest share of the time.
    """
    worst: dict[str, Probe] = {}
    for probe in probes:
        if probe.is_launch_bound:
            known = worst.setdefault(probe.name, probe)
            if probe.device_ns / probe.call_ns < known.device_ns / known.call_ns:
                worst[probe.name] = probe
    if not worst:
        return ""
    if len(worst) == 1:
        ((name, probe),) = worst.items()
        works = f"the device works for {precise(probe.device_ns)} of the {precise(probe.call_ns)}"
        return f"{name} is launch-bound: {works} that a call takes back to back"
    shares = sorted(probe.device_ns / probe.call_ns for probe in worst.values())
    low, high = percent(shares[0]), percent(shares[-1])
    share = low if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"{names_of(worst)} are launch-bound: the device works for {share} of the time that calls take back to back"


def probe(name: str, call: FunctionCall, adapter: Adapter, device_ns: float, batch: int = _BATCH) -> Probe:
    """Measures the time per call of a function when its calls directly follow each other. Stops as
    soon as the function is clearly not launch-bound.

    Args:
        name: The function's name.
        call: The function with its arguments.
        adapter: The adapter for the function's arrays.
        device_ns: The time in ns that the device works for one call.
        batch: The number of calls between two waits.
    """
    turn = back_to_back(Caching(call, "hot", adapter), adapter)
    turn(1)
    until = time.monotonic() + _SECONDS
    least = float(turn(1))
    for _ in range(1 if adapter.virtual else _BATCHES):
        if least <= _LAUNCH_BOUND * device_ns or time.monotonic() > until:
            break
        least = min(least, turn(batch) / batch)
    return Probe(name, device_ns, least)
