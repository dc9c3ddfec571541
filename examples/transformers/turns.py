"""A step as written and mended, timed in one process: in turns, as a shared host's speed changes by the second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

Step = Callable[[], object]
Mends = Mapping[str, Step]
FEWEST_STEPS, MOST_STEPS, MOST_S = 64, 450, 4.0
_WARM_S, _FEWEST_TURNS = 0.3, 3
# A turn begins and ends with an idle device, which a step that no longer waits for it does not: of 16 steps of a ViT
# that was 0.06 ms each, a quarter of what mending gains.
_TURN_S = 0.3


def take(step: Step, parts: int) -> None:
    """Steps enough for `unstall run`, which records a few between two stretches of at most 200 that it times.

    A call is `parts` steps. MOST_STEPS is what short ones take; of longer ones those of MOST_S seconds do, and in any
    case FEWEST_STEPS.
    """
    begun, taken = time.perf_counter(), 0
    while taken < MOST_STEPS and (taken < FEWEST_STEPS or time.perf_counter() - begun < MOST_S):
        step()
        taken += parts


def in_turns(
    written: Step, mends: Mends, parts: int, for_s: float, wait: Callable[[], None] = torch.cuda.synchronize
) -> dict[str, object]:
    """Milliseconds a step, by turn: written, mended in each way, written, … for `for_s` seconds.

    A call is `parts` steps; `wait` waits for the device.
    """
    for step in (written, *mends.values()):
        step()
        _timed(step, _WARM_S, wait)
    begun = time.perf_counter()
    before: list[float] = []
    after: dict[str, list[float]] = {name: [] for name in mends}
    while len(before) < _FEWEST_TURNS or time.perf_counter() - begun < for_s:
        before.append(1e3 * _timed(written, _TURN_S, wait) / parts)
        for name, step in mends.items():
            after[name].append(1e3 * _timed(step, _TURN_S, wait) / parts)
    return {"before_ms": before, "after_ms": after}


def _timed(step: Step, least_s: float, wait: Callable[[], None]) -> float:
    """Seconds a call: as many as that many seconds take, one at least."""
    wait()
    begun, count = time.perf_counter(), 0
    while not count or time.perf_counter() - begun < least_s:
        step()
        count += 1
    wait()
    return (time.perf_counter() - begun) / count


def device_work(step: Step, parts: int, calls: int = 3) -> dict[str, list[float]]:
    """What a step does on the device, by torch's profiler: of each name how many ops, and their milliseconds."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    work: dict[str, list[float]] = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            of_it = work.setdefault(event.name, [0.0, 0.0])
            of_it[0] += 1 / (calls * parts)
            of_it[1] += event.time_range.elapsed_us() / 1e3 / (calls * parts)
    return work
