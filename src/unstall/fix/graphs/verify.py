"""Verifies graphs against the eager function: both run from the same state, on the same inputs and on changed ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import starmap

import torch

from unstall.fix.graphs.capture.captured import Captured
from unstall.fix.graphs.refusals import Refusal, Refused
from unstall.fix.graphs.saved_state import SavedState
from unstall.fix.graphs.static_call import StaticCall
from unstall.fix.graphs.static_inputs import copies_of
from unstall.fix.tensors.nesting import tensors_in

_ROUNDINGS = 1024  # epsilons of the largest value by which sums in another order may differ
_TRIES = 10  # runs until one gives other bits
_MORE = 3  # replays to see which elements vary
_SPREADS = 8  # times the largest variation of an element
_SECONDS = 0.3  # approximate time for measuring
_FEW = 5  # rounds
_NOISELESS = 1e-3  # relative spread below which times are a simulation's, not a device's
_MARGIN = 0.99  # several streams are used only if they take less than this share of the serial time
_ASKS = (
    "it asks whether it is captured, and may then take another way, as attention with nothing masked does in "
    "transformers: pass an attention_mask of four dimensions, which it takes as it is"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Copies of a run's results (`given`) and of the memory that the run may have written."""

    given: list[torch.Tensor]
    memory: list[torch.Tensor]

    def tensors(self) -> list[torch.Tensor]:
        return [*self.given, *self.memory]


@dataclass(frozen=True, slots=True)
class Times:
    """Median times of eager and of captures, which were measured in turn, in seconds."""

    eager: float
    serial: float
    parallel: float | None  # the fastest parallel capture
    rounds: int


def check(static_call: StaticCall, captured: Captured, inputs: list[torch.Tensor], saved: SavedState) -> bool:
    """Compares a replay with eager. Raises `Refused` if the values differ. Does not restore the program's state.

    Returns whether replays from one state give the same bits. Kernels that add up in varying order give other bits in
    each run, eager or replayed. With such kernels, a replay may differ from eager by rounding, or by as much as replays
    differ from each other: more than rounding, if large terms cancel. A replay may also differ by rounding if the
    function asks whether it is being captured. All other differences come from the host and raise `Refused`.
    """
    eager, replayed = _eager(static_call, inputs, saved), _replayed(static_call, captured, inputs, saved)
    if _same(eager, replayed):
        return True
    anew = _replayed(static_call, captured, inputs, saved)
    far = [place for place, pair in enumerate(_pairs(eager, replayed)) if not _within_rounding(*pair)]
    if far and not _same(replayed, anew):
        more = [_replayed(static_call, captured, inputs, saved) for _ in range(_MORE)]
        far = _beyond(eager, [replayed, anew, *more], far)
    if not far and static_call.seen.asks_whether_captured:
        return _same(replayed, anew)
    again = partial(_replayed, static_call, captured, inputs, saved), partial(_eager, static_call, inputs, saved)
    if far or not all(map(_varies, (replayed, eager), again)):
        names = _names(static_call, captured, eager)
        raise Refused(_mismatch(eager, replayed, far, names, asks=static_call.seen.asks_whether_captured))
    return False


def _eager(static_call: StaticCall, inputs: list[torch.Tensor], saved: SavedState) -> Outcome:
    saved.restore()
    return Outcome(static_call.eager(copies_of(inputs)), saved.now())


def _replayed(static_call: StaticCall, captured: Captured, inputs: list[torch.Tensor], saved: SavedState) -> Outcome:
    saved.restore()
    return Outcome(static_call.replayed(captured, inputs), saved.now())


def _pairs(one: Outcome, other: Outcome) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(one.tensors(), other.tensors(), strict=False))


def _varies(one: Outcome, again: Callable[[], Outcome]) -> bool:
    """Returns whether any of several more runs gives other bits. Some kernels give other bits only in some runs."""
    return any(not _same(one, again()) for _ in range(_TRIES))


def _same(one: Outcome, other: Outcome) -> bool:
    return len(one.tensors()) == len(other.tensors()) and all(starmap(same_values, _pairs(one, other)))


def _within_rounding(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if same_values(mine, theirs):
        return True
    if mine.shape != theirs.shape or not mine.is_floating_point() or mine.dtype != theirs.dtype:
        return False
    largest = float(mine.detach().abs().max())
    return largest_difference(mine, theirs) <= _ROUNDINGS * float(torch.finfo(mine.dtype).eps) * largest


def _beyond(eager: Outcome, replays: list[Outcome], places: list[int]) -> list[int]:
    """Returns those of `places` at which eager differs too much from the first replay.

    Too much is far more than replays differ from each other.
    """
    mine, runs = eager.tensors(), [replay.tensors() for replay in replays]
    if any(len(run) != len(mine) for run in runs):
        return places
    return [place for place in places if not _within_spread(mine[place], [run[place] for run in runs])]


def _within_spread(mine: torch.Tensor, theirs: list[torch.Tensor]) -> bool:
    """Returns whether eager's tensor differs from a replay's by rounding only, except for elements that vary between
    replays. Those elements may differ by several times the largest variation."""
    if any(mine.shape != each.shape or mine.dtype != each.dtype for each in theirs) or not mine.is_floating_point():
        return False
    low = high = theirs[0].detach()
    for each in theirs[1:]:
        low, high = torch.minimum(low, each.detach()), torch.maximum(high, each.detach())
    spread = (high - low).float()
    off = (mine.detach().float() - theirs[0].detach().float()).abs()
    rounding = _ROUNDINGS * float(torch.finfo(mine.dtype).eps) * float(mine.detach().abs().max())
    allowed = torch.where(spread > 0, max(rounding, _SPREADS * float(spread.max())), rounding)
    return bool((off <= allowed).all())


def _names(static_call: StaticCall, captured: Captured, outcome: Outcome) -> list[str]:
    """Describes each tensor of an outcome: results, gradients, arguments written to, then other memory."""
    results, written = len(tensors_in(captured.results[0][0])), len(static_call.written_inputs)
    return [
        *(["its result"] if results == 1 else [f"tensor {place} of its result" for place in range(results)]),
        *["a gradient"] * (len(outcome.given) - results - written),
        *["an argument that it writes"] * written,
        *["a tensor that it writes"] * len(outcome.memory),
    ]


def _mismatch(eager: Outcome, replayed: Outcome, far: list[int], names: list[str], *, asks: bool) -> Refusal:
    """Returns the refusal of a graph that gives other values than eager.

    `far`: indices of tensors that differ by more than rounding. `asks`: the function asks whether it is captured.
    """
    what = "another number of tensors"
    for place, (mine, theirs) in enumerate(_pairs(eager, replayed)):
        if place in far or (not far and not same_values(mine, theirs)):
            what = names[place]
            if mine.shape == theirs.shape:
                what += f" differs by up to {largest_difference(mine, theirs):.3g}"
            break
    reason = f"replayed, it gives something else than when it is run: {what}"
    return Refusal(reason, None, _ASKS if asks else "look for values that change on the host between calls")


def agree(
    static_call: StaticCall, one: Captured, other: Captured, inputs: list[torch.Tensor], saved: SavedState
) -> bool:
    """Returns whether replays of two captures, from the same state and on the same inputs, give the same bits."""
    return _same(_replayed(static_call, one, inputs, saved), _replayed(static_call, other, inputs, saved))


def fastest(
    static_call: StaticCall, serial: Captured, parallel: list[Captured], inputs: list[torch.Tensor], saved: SavedState
) -> tuple[Captured, Times]:
    """Measures eager and all captures in turn, each from the saved state. Returns the fastest capture and the times.
    The caller restores the state."""

    def timed_eager() -> float:
        return static_call.timed_eager(inputs, saved)

    def timed_replay(captured: Captured) -> float:
        return static_call.timed_replay(captured, inputs, saved)

    captures = serial, *parallel
    timed_eager()
    for captured in captures:
        timed_replay(captured)
    once = timed_eager() + sum(map(timed_replay, captures))
    most = max(_FEW, min(25, int(_SECONDS / max(once, 1e-6))))
    eager: list[float] = []
    replays: list[list[float]] = [[] for _ in captures]
    rounds = 0
    while rounds < most and not (rounds == 2 and all(map(_alike, (eager, *replays)))):
        if rounds < _FEW:  # eager is far slower, and needs less precision
            eager.append(timed_eager())
        for measured, captured in zip(replays, captures, strict=True):
            measured.append(timed_replay(captured))
        rounds += 1
    medians = [statistics.median(times) for times in replays]
    best = min(range(1, len(medians)), key=medians.__getitem__, default=0)
    times = Times(statistics.median(eager), medians[0], medians[best] if best else None, rounds)
    chosen = parallel[best - 1] if best and medians[best] < _MARGIN * medians[0] else serial
    return chosen, times


def _alike(times: list[float]) -> bool:
    """Returns whether the times are so close that more of them add no information."""
    return max(times) - min(times) <= _NOISELESS * max(times)


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether shapes, dtypes and all elements are equal; NaN equals NaN. Waits for the device."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_floating_point() or one.is_complex():
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return bool((one == other).all())


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.numel() == 0:
        return 0.0
    return float((one.detach().double() - other.detach().double()).abs().max())
