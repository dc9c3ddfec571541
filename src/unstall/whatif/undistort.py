"""`undistort`: take the recorder's own cost back out of a program."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unstall.replay.program import Code, Program, Recorded
from unstall.replay.steady import steady_step_ns
from unstall.timeline import I64, Bool, Recorder


@dataclass(frozen=True, slots=True)
class RecorderCost:
    """What recording one event adds, in ns: to the host for each kind of event, to the device for each op."""

    operator: int
    frame: int
    call: int
    launch: int
    node: int  # each op of a graph, to the host's call that launches it
    op: int  # between two ops of a stream


USUAL = RecorderCost(operator=2400, frame=350, call=1500, launch=1500, node=900, op=200)
"""Of torch.profiler, with or without stacks."""

USUAL_OF: dict[Recorder | None, RecorderCost] = {
    None: USUAL,
    # The line clock's frames are some 60 ns each, too little to count one by one.
    "torch": replace(USUAL, frame=0),
    # 2.5 to 6 us a launch in all, in paired runs of three programs on an H200 (docs/recording.md); how much of that is
    # within the call is not told apart.
    "cupti": RecorderCost(operator=0, frame=0, call=1200, launch=3100, node=500, op=200),
    "virtual": RecorderCost(operator=0, frame=0, call=0, launch=0, node=0, op=0),  # a virtual clock leaves it out
}
"""By recorder; None for what is none of unstall's own."""

LEAST_ERROR = 0.03
"""How far the step time of a device-bound run is off without the usual cost, in 9 of 10: benchmarks/whatif.py."""
USUAL_ERROR = 0.35
"""How far the host's time is off without the usual cost, in 9 of 10 runs that it bounds and that had no part in fitting
it: benchmarks/whatif.py --fit."""
USUAL_ERROR_OF: dict[Recorder | None, float] = {
    **dict.fromkeys((None, "torch"), USUAL_ERROR),
    "cupti": 0.15,
    "virtual": 0.0,
}
"""By recorder. Cupti adds up to a quarter to a step that the host bounds, and the estimate of that may be off by half:
docs/recording.md."""

_MOST_SCALE = 4.0
_STRETCH = (0.75, 1.25)
_HOST = (0.5, 2.0)  # by how much a host changes its speed: a shared one was seen to, by 1.8
# From the recorded steps to those timed without recording, how far the logarithm of either's speed strays: of a shared
# host half of the changes were beyond 5 %, while a step that an H200 bounds kept to 0.5 %.
_HOST_STRAYS, _DEVICE_STRAYS = 0.1, 0.01
_NEARLY, _CLOSE = 1.005, 0.002
_NOTHING = 1e-6  # of a step
_HALVINGS, _SECTIONS = 12, 8
_PAUSE_TIMES, _PAUSE_NS = 4, 300_000
_LEAST_WORK, _LEAST_CALL = 0.15, 0.25  # of what was recorded


def undistort(program: Program, scale: float = 1.0, cost: RecorderCost = USUAL) -> Program:
    """The program without `scale` times the usual cost of the recorder."""
    do, ops = program.instructions, program.ops
    events = do.recorded.astype(np.float64)
    on_work = scale * (
        cost.operator * events[:, Recorded.OPERATOR]
        + cost.frame * events[:, Recorded.FRAME]
        + cost.call * events[:, Recorded.CALL]
    )
    launches = do.code == Code.LAUNCH
    on_call = scale * (cost.launch * events[:, Recorded.LAUNCH] + cost.node * events[:, Recorded.NODE])
    # What a launching call does once its ops have arrived is an instruction of its own, and shares the cost.
    rest = np.flatnonzero(launches[:-1] & do.goes_on[1:] & (do.code[1:] == Code.CALL))
    on_call[rest + 1] = np.minimum(on_call[rest], do.call[rest + 1] * (1 - _LEAST_CALL))
    on_call[rest] -= on_call[rest + 1]
    call = _less(do.call, on_call, _LEAST_CALL)
    gap = np.where(ops.gap > 0, np.maximum(ops.gap - round(min(scale, 1.0) * cost.op), ops.gap // 4), ops.gap)
    return replace(
        program,
        instructions=replace(do, work=_less(do.work, on_work, _LEAST_WORK), call=call),
        ops=replace(ops, gap=gap),
    )


def meet(
    program: Program, plain_step_ns: float, elastic: Bool | None = None, cost: RecorderCost = USUAL
) -> tuple[Program, float]:
    """The program without so much of the recorder's cost that its steps take as long as they did without recording.

    Where the host does not decide how long they take, the device's ops are made faster or slower by up to a quarter;
    where that comes no nearer, they stay as they are. `elastic` says which ops may, all if it is None; the second
    result is by how much they did.
    """
    least = undistort(program, _MOST_SCALE, cost)
    if steady_step_ns(least) < plain_step_ns:
        scale = _bisect(lambda x: steady_step_ns(undistort(program, x, cost)) - plain_step_ns, 0.0, _MOST_SCALE)
        chosen = undistort(program, scale, cost)
    else:
        # Even a host with no recorder at all leaves it slower than it was: what counts is the device.
        usual = undistort(program, 1.0, cost)
        chosen = usual if steady_step_ns(usual) < _NEARLY * steady_step_ns(least) else least
    if abs(steady_step_ns(chosen) / plain_step_ns - 1) < _CLOSE:
        return chosen, 1.0
    which = np.ones(len(program.ops), dtype=np.bool_) if elastic is None else elastic
    factor = _bisect(lambda x: plain_step_ns - steady_step_ns(_stretched(chosen, x, which)), *_STRETCH)
    stretched = _stretched(chosen, factor, which)
    off, before = (abs(steady_step_ns(each) - plain_step_ns) for each in (stretched, chosen))
    return (stretched, factor) if off < before - _CLOSE * plain_step_ns else (chosen, 1.0)


def meet_alone(program: Program, plain_step_ns: float, elastic: Bool, kept: Bool) -> tuple[Program, float]:
    """The same of a program without the recorder's cost, whose host was faster or slower when the time was measured.

    Of all pairs of a host and a device that take as long it is the likeliest. Work that `kept` marks, such as data
    loading, is as slow as it was. Where no pair comes at least half the way, it was neither of both.
    """
    close_ns = _CLOSE * plain_step_ns
    steps_ns: dict[tuple[float, float], float] = {}

    def changed(host: float, device: float) -> Program:
        return _stretched(_slower(program, host, kept), device, elastic)

    def off(host: float, device: float) -> float:
        if (host, device) not in steps_ns:
            steps_ns[host, device] = steady_step_ns(changed(host, device))
        return plain_step_ns - steps_ns[host, device]

    def unlikely(host: float, device: float) -> float:
        share = max(1 - off(host, device) / plain_step_ns, _NOTHING)
        strays = (math.log(host) / _HOST_STRAYS, math.log(device) / _DEVICE_STRAYS, math.log(share) / _CLOSE)
        return math.hypot(*strays)

    def host_for(device: float) -> float:
        host = _root(lambda x: off(x, device), *_HOST, close_ns / 4)
        return min(1.0, host, key=lambda x: unlikely(x, device))  # it may be of no account

    if abs(off(1.0, 1.0)) < close_ns:
        return program, 1.0
    device, furthest = 1.0, _STRETCH[off(1.0, 1.0) > 0]
    of_account = abs(off(1.0, furthest) - off(1.0, 1.0)) > close_ns / 4
    if of_account or abs(off(host_for(1.0), 1.0)) > close_ns:
        found = _least(lambda x: unlikely(host_for(x), x), *sorted((1.0, furthest)))
        device = min(1.0, found, key=lambda x: unlikely(host_for(x), x))
    host = host_for(device)
    if host == 1.0:
        alone = _root(lambda x: off(1.0, x), *_STRETCH, close_ns / 4)
        device = min(device, alone, key=lambda x: unlikely(1.0, x))
    if abs(off(host, device)) > abs(off(1.0, 1.0)) / 2:
        return program, 1.0
    return changed(host, device), device


def _slower(program: Program, share: float, kept: Bool) -> Program:
    """A host that takes such a share of its time, but for the work that is kept."""
    do = program.instructions
    work, call = (np.rint(share * times).astype(np.int64) for times in (do.work, do.call))
    return replace(program, instructions=replace(do, work=np.where(kept, do.work, work), call=call))


def _stretched(program: Program, factor: float, which: Bool) -> Program:
    duration = np.rint(np.where(which, program.ops.duration * factor, program.ops.duration)).astype(np.int64)
    return replace(program, ops=replace(program.ops, duration=duration))


def _bisect(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function passes 0, or the end nearest to that."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def _root(excess: Callable[[float], float], low: float, high: float, close: float) -> float:
    """Where a falling function comes `close` to 0, or the end nearest to that: by secants, the Illinois way."""
    at_low, at_high = excess(low), excess(high)
    if at_low <= 0 or at_high >= 0:
        return low if at_low <= 0 else high
    middle, last = (low + high) / 2, 0.0
    for _ in range(_HALVINGS):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at = excess(middle)
        if abs(at) < close:
            break
        again = at * last > 0  # the other end has stood for two turns: it counts half
        if at > 0:
            low, at_low, at_high = middle, at, at_high / 2 if again else at_high
        else:
            high, at_high, at_low = middle, at, at_low / 2 if again else at_low
        last = at
    return middle


def _least(cost: Callable[[float], float], low: float, high: float) -> float:
    """Where it is least, if it falls up to there and rises from there on: by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(_SECTIONS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = cost(right)
    return (low + high) / 2


def without_pauses(program: Program, kept: Bool | None = None) -> tuple[Program, int]:
    """The program without what took far longer in one step than in all others, and how many ns that was.

    A pause of the recorder, a first use, a collection of garbage: what a step usually does not have. Only steps of
    the same instructions are compared; of two only the first can have had a pause, as recording began. What `kept`
    marks, such as data loading, is as slow as it was.
    """
    do = program.instructions
    names = do.code.astype(np.int64) * (int(do.stream.max(initial=0)) + 2) + do.stream
    spans = [np.arange(start, end + 1) for start, end in zip(program.step_starts, program.step_ends, strict=True)]
    alike = [rows for rows in spans if np.array_equal(names[rows], names[spans[-1]])]
    if len(alike) < 2:
        return program, 0
    rows = np.stack(alike)[:, 1:]  # what is between steps is not theirs
    work, call, left_out = do.work.copy(), do.call.copy(), 0
    for times in (work, call):
        usual = np.sort(times[rows], axis=0)[-2]  # of all but the longest
        longer = times[rows] > np.maximum(_PAUSE_TIMES * usual, usual + _PAUSE_NS)
        if len(rows) == 2:
            longer[1] = False
        if kept is not None:
            longer &= ~kept[rows]
        left_out += int((times[rows] - usual)[longer].sum())
        times[rows] = np.where(longer, usual, times[rows])
    return replace(program, instructions=replace(do, work=work, call=call)), left_out


def _less(times: I64, cost: np.ndarray, least: float) -> I64:
    less: I64 = np.maximum(times - cost, times * least).astype(np.int64)
    return less
