"""Whether graphs do what the function does: both run from the same state, on the same and on changed inputs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import starmap

import torch

from unstall.fix.graphs.capture.captured import Captured
from unstall.fix.graphs.refusals import Refusal, Refused
from unstall.fix.graphs.state import Saved, copies_of, largest_difference, same_values
from unstall.fix.graphs.subject import Subject
from unstall.fix.tensors.nesting import tensors_in

_ROUNDINGS = 1024  # of the largest value: by so much may sums differ whose kernels add up in any order
_SECONDS = 0.3  # spent on measuring, about
_FEW = 5  # rounds
_NOISELESS = 1e-3  # so near to each other are times of a simulation, and hardly ever two of a device
_MARGIN = 0.99  # of the serial time, or of eager's: what is not at least so much faster is not worth a change
_ASKS = (
    "it asks whether it is captured, and may then take another way, as attention with nothing masked does in "
    "transformers: pass an attention_mask of four dimensions, which it takes as it is"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave and left behind."""

    given: list[torch.Tensor]
    memory: list[torch.Tensor]

    def tensors(self) -> list[torch.Tensor]:
        return [*self.given, *self.memory]


@dataclass(frozen=True, slots=True)
class Times:
    """Medians of interleaved rounds, in seconds."""

    eager: float
    serial: float
    parallel: float | None  # the best of them
    rounds: int


def check(subject: Subject, captured: Captured, inputs: list[torch.Tensor], saved: Saved) -> bool:
    """Raises `Refused` where a replay gives something else than eager. Leaves the state changed.

    Whether replays of one state are the same. Kernels that add up in any order give something else each time, eager
    and replayed: then a replay may differ from eager by rounding. It may too where the function asks whether it is
    captured, and takes another way. What else differs from eager, and not from replay to replay, comes from the host.
    """
    eager, replayed = _eager(subject, inputs, saved), _replayed(subject, captured, inputs, saved)
    if _same(eager, replayed):
        return True
    anew = _replayed(subject, captured, inputs, saved)
    far = [place for place, pair in enumerate(_pairs(eager, replayed)) if not _within_rounding(*pair)]
    if not far and subject.seen.asks_whether_captured:
        return _same(replayed, anew)
    if far or _same(replayed, anew) or _same(eager, _eager(subject, inputs, saved)):
        names = _names(subject, captured, eager)
        raise Refused(_mismatch(eager, replayed, far, names, asks=subject.seen.asks_whether_captured))
    return False


def _eager(subject: Subject, inputs: list[torch.Tensor], saved: Saved) -> Outcome:
    saved.restore()
    return Outcome(subject.eager(copies_of(inputs)), saved.now())


def _replayed(subject: Subject, captured: Captured, inputs: list[torch.Tensor], saved: Saved) -> Outcome:
    saved.restore()
    return Outcome(subject.replayed(captured, inputs), saved.now())


def _pairs(one: Outcome, other: Outcome) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(one.tensors(), other.tensors(), strict=False))


def _same(one: Outcome, other: Outcome) -> bool:
    return len(one.tensors()) == len(other.tensors()) and all(starmap(same_values, _pairs(one, other)))


def _within_rounding(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if same_values(mine, theirs):
        return True
    if mine.shape != theirs.shape or not mine.is_floating_point() or mine.dtype != theirs.dtype:
        return False
    largest = float(mine.detach().abs().max())
    return largest_difference(mine, theirs) <= _ROUNDINGS * float(torch.finfo(mine.dtype).eps) * largest


def _names(subject: Subject, captured: Captured, outcome: Outcome) -> list[str]:
    """What each tensor of an outcome is: results come first, then gradients, then arguments."""
    results, written = len(tensors_in(captured.results[0][0])), len(subject.written_inputs)
    return [
        *(["its result"] if results == 1 else [f"tensor {place} of its result" for place in range(results)]),
        *["a gradient"] * (len(outcome.given) - results - written),
        *["an argument that it writes"] * written,
        *["a tensor that it writes"] * len(outcome.memory),
    ]


def _mismatch(eager: Outcome, replayed: Outcome, far: list[int], names: list[str], *, asks: bool) -> Refusal:
    """`far`: which tensors differ by more than rounding, if any. `asks`: that it asks whether it is captured."""
    what = "another number of tensors"
    for place, (mine, theirs) in enumerate(_pairs(eager, replayed)):
        if place in far or (not far and not same_values(mine, theirs)):
            what = names[place]
            if mine.shape == theirs.shape:
                what += f" differs by up to {largest_difference(mine, theirs):.3g}"
            break
    reason = f"replayed, it gives something else than when it is run: {what}"
    return Refusal(reason, None, _ASKS if asks else "look for values that change on the host between calls")


def agree(subject: Subject, one: Captured, other: Captured, inputs: list[torch.Tensor], saved: Saved) -> bool:
    """Whether two captures give the same bits."""
    return _same(_replayed(subject, one, inputs, saved), _replayed(subject, other, inputs, saved))


def fastest(
    subject: Subject, serial: Captured, parallel: list[Captured], inputs: list[torch.Tensor], saved: Saved
) -> tuple[Captured, Times]:
    """Measured in turns, each from the saved state. The caller puts that back afterwards."""

    def timed_eager() -> float:
        return subject.timed_eager(inputs, saved)

    def timed_replay(captured: Captured) -> float:
        return subject.timed_replay(captured, inputs, saved)

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
        if rounds < _FEW:  # it is far slower, and needs no such precision
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
    """Whether more of them would tell nothing."""
    return max(times) - min(times) <= _NOISELESS * max(times)
