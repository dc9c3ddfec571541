"""Calibration: adjusts a program so that its steps take the plain step time, which was measured
without the recorder.

On six recordings of transformers (`python -m benchmarks.recorder_mechanisms`), the median error of
predicted gains is 1.8 % of the measured step with calibration, and 5.3 % without it. Only one speed
is adjusted, that of the host or that of the device. A search for the most likely pair of both
speeds improved the error by 0.0 percentage points, and was removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.timeline.columns import Bool
from unstall.what_if.undistort import USUAL, RecorderCost, undistort

_MOST_SCALE = 4.0
_DEVICE = (0.75, 1.25)
_HOST = (0.5, 2.0)  # a shared host was seen to change its speed by 1.8
# Standard deviations of the logarithm of each speed between the recorded steps and the plain ones. Half of the changes
# of a shared host were beyond 5 %; a step limited by an H200 stayed within 0.5 %.
_HOST_STRAYS, _DEVICE_STRAYS = 0.1, 0.01
_NEARLY, _CLOSE = 1.005, 0.002
_NEAR_ENOUGH = _CLOSE / 4  # of a step: the search stops when it is this close
_NOTHING = 1e-6  # of a step
_MOST_TURNS = 40


def by_overhead(
    program: Program, plain_step_ns: float, elastic: Bool | None = None, cost: RecorderCost = USUAL
) -> tuple[Program, float]:
    """Takes a part of the recorder's overhead out of a program: as much as is needed for its steps
    to take `plain_step_ns`.

    It is meant for recorders whose overhead is large and not well known, such as torch.profiler. If
    the device limits the steps, that alone cannot match `plain_step_ns`. Then ops also become
    faster or slower, by up to a quarter, if that brings the step time closer.

    Args:
        program: The program as recorded.
        plain_step_ns: The plain step time, in ns.
        elastic: A mask of the ops whose length may change; None for all.
        cost: What recording usually costs. Some multiple of it is taken out.

    Returns:
        The changed program, and the factor by which the length of its elastic ops was multiplied.
    """
    near_ns = _NEAR_ENOUGH * plain_step_ns

    @cache
    def step_ns(scale: float) -> float:
        return steady_step_ns(undistort(program, scale, cost))

    if step_ns(_MOST_SCALE) < plain_step_ns:
        scale = _root(lambda x: step_ns(x) - plain_step_ns, 0.0, _MOST_SCALE, near_ns)
    else:
        # Even with all overhead removed the program is slower than it was, so the device limits it.
        scale = 1.0 if step_ns(1.0) < _NEARLY * step_ns(_MOST_SCALE) else _MOST_SCALE
    chosen, off_ns = undistort(program, scale, cost), abs(step_ns(scale) - plain_step_ns)
    if off_ns < _CLOSE * plain_step_ns:
        return chosen, 1.0
    which = np.ones(len(program.ops), dtype=np.bool_) if elastic is None else elastic

    @cache
    def stretched_off(factor: float) -> float:
        return plain_step_ns - steady_step_ns(_stretched(chosen, factor, which))

    factor = _root(stretched_off, *_DEVICE, near_ns)
    nearer = abs(stretched_off(factor)) < off_ns - _CLOSE * plain_step_ns
    return (_stretched(chosen, factor, which), factor) if nearer else (chosen, 1.0)


def by_speed(program: Program, plain_step_ns: float, elastic: Bool, kept: Bool) -> tuple[Program, float]:
    """Makes the host or the device faster or slower, so that the program's steps take
    `plain_step_ns`.

    It is meant for the recorder `cupti`: its overhead is small and known, so what still differs is
    taken for a change of speed.

    Args:
        program: The program without the recorder's overhead.
        plain_step_ns: The plain step time, in ns.
        elastic: A mask of the ops whose length may change.
        kept: A mask of the instructions before which the host's work stays as it is, such as data
            loading.

    Returns:
        The program with the more likely of the two changes, and the factor by which the length of
        its elastic ops was multiplied. If neither change brings the step time at least half way to
        `plain_step_ns`, the program is unchanged and the factor is 1.
    """
    before_ns = steady_step_ns(program)
    off_ns = plain_step_ns - before_ns
    if abs(off_ns) < _CLOSE * plain_step_ns:
        return program, 1.0
    slower = off_ns > 0

    def found(change: Callable[[float], Program], ends: tuple[float, float], strays: float) -> tuple[float, float]:
        """Finds the factor with which `change` brings the step time closest to the plain step time.

        Returns `(score, factor)`. The higher the score, the less likely is a change by this factor.
        If it does not bring the step time at least half way to the plain step time, returns
        infinity and 1.
        """

        @cache
        def off(factor: float) -> float:
            return plain_step_ns - steady_step_ns(change(factor))

        factor = _root(off, *_to_one(ends[slower]), _NEAR_ENOUGH * plain_step_ns)
        share = max(1 - off(factor) / plain_step_ns, _NOTHING)
        if abs(off(factor)) > abs(off_ns) / 2:
            return math.inf, 1.0
        return math.hypot(math.log(factor) / strays, math.log(share) / _CLOSE), factor

    def with_host(factor: float) -> Program:
        return _slower(program, factor, kept)

    def with_device(factor: float) -> Program:
        return _stretched(program, factor, elastic)

    host_unlikely, host = found(with_host, _HOST, _HOST_STRAYS)
    device_unlikely, device = found(with_device, _DEVICE, _DEVICE_STRAYS)
    if host_unlikely <= device_unlikely:
        return with_host(host), 1.0
    return with_device(device), device


def _to_one(end: float) -> tuple[float, float]:
    return min(1.0, end), max(1.0, end)


def _slower(program: Program, share: float, kept: Bool) -> Program:
    """Returns the program with all of the host's time multiplied by `share`, except the work before
    the instructions in `kept`.
    """
    do = program.instructions
    work, call = (np.rint(share * times).astype(np.int64) for times in (do.work, do.call))
    return replace(program, instructions=replace(do, work=np.where(kept, do.work, work), call=call))


def _stretched(program: Program, factor: float, which: Bool) -> Program:
    duration = np.rint(np.where(which, program.ops.duration * factor, program.ops.duration)).astype(np.int64)
    return replace(program, ops=replace(program.ops, duration=duration))


def _root(excess: Callable[[float], float], low: float, high: float, close: float) -> float:
    """Returns an argument at which the falling function `excess` is within `close` of 0.

    If it has no zero between `low` and `high`, returns the one of them at which it is nearer to 0.
    The method is the secant method of Anderson and Björck.
    """
    at_low, at_high = excess(low), excess(high)
    if at_low <= 0 or at_high >= 0:
        return low if at_low <= 0 else high
    middle, last = low, 0.0
    for _ in range(_MOST_TURNS):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at = excess(middle)
        if abs(at) < close:
            break
        # An end that has not moved for two iterations gets less weight: the smaller the last gain, the less.
        if at > 0:
            at_high *= _weight(at / at_low) if last > 0 else 1.0
            low, at_low = middle, at
        else:
            at_low *= _weight(at / at_high) if last < 0 else 1.0
            high, at_high = middle, at
        last = at
    return middle


def _weight(left: float) -> float:
    return 1 - left if left < 1 else 0.5
