"""A program whose steps take as long as they did without the recorder, where that was measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeAlias

import numpy as np

from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.timeline.columns import Bool
from unstall.whatif.undistort import USUAL, RecorderCost, undistort

_MOST_SCALE = 4.0
_DEVICE = (0.75, 1.25)
_HOST = (0.5, 2.0)  # by how much a host changes its speed: a shared one was seen to, by 1.8
# From the recorded steps to those timed without recording, how far the logarithm of either's speed strays: of a shared
# host half of the changes were beyond 5 %, while a step that an H200 bounds kept to 0.5 %.
_HOST_STRAYS, _DEVICE_STRAYS = 0.1, 0.01
_NEARLY, _CLOSE = 1.005, 0.002
_MET = _CLOSE / 4  # of a step: nearer than this no search goes
_NOTHING = 1e-6  # of a step
_MOST_TURNS = 40

_Pair: TypeAlias = tuple[float, float]
"""By how much a host and a device take longer."""


def meet(
    program: Program, plain_step_ns: float, elastic: Bool | None = None, cost: RecorderCost = USUAL
) -> tuple[Program, float]:
    """The program without so much of the recorder's cost that its steps take as long as they did without recording.

    Where the host does not decide how long they take, the device's ops are made faster or slower by up to a quarter;
    where that comes no nearer, they stay as they are. `elastic` says which ops may, all if it is None; the second
    result is by how much they did.
    """
    met_ns = _MET * plain_step_ns

    @cache
    def step_ns(scale: float) -> float:
        return steady_step_ns(undistort(program, scale, cost))

    if step_ns(_MOST_SCALE) < plain_step_ns:
        scale = _root(lambda x: step_ns(x) - plain_step_ns, 0.0, _MOST_SCALE, met_ns)
    else:
        # Even a host with no recorder at all leaves it slower than it was: what counts is the device.
        scale = 1.0 if step_ns(1.0) < _NEARLY * step_ns(_MOST_SCALE) else _MOST_SCALE
    chosen, off_ns = undistort(program, scale, cost), abs(step_ns(scale) - plain_step_ns)
    if off_ns < _CLOSE * plain_step_ns:
        return chosen, 1.0
    which = np.ones(len(program.ops), dtype=np.bool_) if elastic is None else elastic

    @cache
    def stretched_off(factor: float) -> float:
        return plain_step_ns - steady_step_ns(_stretched(chosen, factor, which))

    factor = _root(stretched_off, *_DEVICE, met_ns)
    nearer = abs(stretched_off(factor)) < off_ns - _CLOSE * plain_step_ns
    return (_stretched(chosen, factor, which), factor) if nearer else (chosen, 1.0)


def meet_alone(program: Program, plain_step_ns: float, elastic: Bool, kept: Bool) -> tuple[Program, float]:
    """The same of a program without the recorder's cost, whose host was faster or slower when the time was measured.

    Of all pairs of a host and a device that take as long it is the likeliest. Work that `kept` marks, such as data
    loading, is as slow as it was. Where no pair comes at least half the way, it was neither of both.
    """
    met_ns = _MET * plain_step_ns

    def changed(host: float, device: float) -> Program:
        return _stretched(_slower(program, host, kept), device, elastic)

    @cache
    def off(host: float, device: float) -> float:
        return plain_step_ns - steady_step_ns(changed(host, device))

    def unlikely(pair: _Pair) -> float:
        share = max(1 - off(*pair) / plain_step_ns, _NOTHING)
        strays = zip((*pair, share), (_HOST_STRAYS, _DEVICE_STRAYS, _CLOSE), strict=True)
        return math.hypot(*(math.log(each) / usual for each, usual in strays))

    if abs(off(1.0, 1.0)) < _CLOSE * plain_step_ns:
        return program, 1.0
    slower = off(1.0, 1.0) > 0
    fastest, slowest = _to_one(_HOST[slower])
    hosts: dict[float, float] = {}  # by device: the host that takes as long with it

    def with_device(device: float) -> _Pair:
        # The slower a device, the faster the host beside it.
        low = max([fastest, *(host for other, host in hosts.items() if other > device)])
        high = min([slowest, *(host for other, host in hosts.items() if other < device)])
        hosts[device] = _root(lambda x: off(x, device), low, high, met_ns)
        return min((1.0, device), (hosts[device], device), key=unlikely)  # it may be of no account

    alone = with_device(1.0)
    device = _root(lambda x: off(1.0, x), *_to_one(_DEVICE[slower]), met_ns)
    pairs = [alone, (1.0, device)]
    if abs(off(*alone)) > met_ns or abs(off(1.0, device) - off(1.0, 1.0)) > met_ns:
        # No pair is likely in which the device strays further than that.
        most = math.exp(_DEVICE_STRAYS * min(map(unlikely, pairs)))
        pairs.append(_least(with_device, unlikely, *_to_one(min(max(device, 1 / most), most))))
    host, device = min(pairs, key=unlikely)
    if abs(off(host, device)) > abs(off(1.0, 1.0)) / 2:
        return program, 1.0
    return changed(host, device), device


def _to_one(end: float) -> tuple[float, float]:
    return min(1.0, end), max(1.0, end)


def _slower(program: Program, share: float, kept: Bool) -> Program:
    """A host that takes such a share of its time, but for the work that is kept."""
    do = program.instructions
    work, call = (np.rint(share * times).astype(np.int64) for times in (do.work, do.call))
    return replace(program, instructions=replace(do, work=np.where(kept, do.work, work), call=call))


def _stretched(program: Program, factor: float, which: Bool) -> Program:
    duration = np.rint(np.where(which, program.ops.duration * factor, program.ops.duration)).astype(np.int64)
    return replace(program, ops=replace(program.ops, duration=duration))


def _root(excess: Callable[[float], float], low: float, high: float, close: float) -> float:
    """Where a falling function comes `close` to 0, or the end nearest to that: by Anderson-Björck secants."""
    at_low, at_high = excess(low), excess(high)
    if at_low <= 0 or at_high >= 0:
        return low if at_low <= 0 else high
    middle, last = low, 0.0
    for _ in range(_MOST_TURNS):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at = excess(middle)
        if abs(at) < close:
            break
        # An end that has stood for two turns counts less: the less, the less the last turn gained.
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


def _least(pair_of: Callable[[float], _Pair], cost: Callable[[_Pair], float], low: float, high: float) -> _Pair:
    """The pair of the least cost, if that falls up to there and rises from there on: by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = pair_of(high - golden * (high - low)), pair_of(low + golden * (high - low))
    while high - low > _DEVICE_STRAYS / 4:
        if cost(left) < cost(right):
            high, right = right[1], left
            left = pair_of(high - golden * (high - low))
        else:
            low, left = left[1], right
            right = pair_of(low + golden * (high - low))
    return min(left, right, key=cost)
