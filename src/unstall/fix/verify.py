"""Whether graphs do what the function does: both run from the same state, on the same and on changed inputs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch

from unstall.fix.capture import Captured
from unstall.fix.refusals import Refusal, Refused
from unstall.fix.state import Saved, copies_of, largest_difference, same_values
from unstall.fix.subject import Subject

_NOISE = 4.0  # times what eager differs from itself: a graph may differ by that much where eager is not repeatable
_SECONDS = 0.3  # spent on measuring, about
_MARGIN = 0.99  # of the serial time, or of eager's: what is not at least so much faster is not worth a change


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
    """Raises `Refused` where a replay gives something else than eager. Leaves the state as after the replay.

    Whether eager gave the same twice; where it does not, a replay may differ from it as much as it does itself.
    """
    saved.restore()
    eager = Outcome(subject.eager(copies_of(inputs)), saved.now())
    saved.restore()
    replayed = Outcome(subject.replayed(captured, inputs), saved.memory())
    saved.restore_grads()
    if _same(eager, replayed):
        return True
    kept = Outcome(replayed.given, saved.now())
    saved.restore()
    again = Outcome(subject.eager(copies_of(inputs)), saved.now())
    for memory, value in zip(saved.memory(), kept.memory, strict=True):
        memory.copy_(value)
    _refuse_beyond_noise(eager, kept, again)
    return False


def _same(one: Outcome, other: Outcome) -> bool:
    pairs = zip(one.tensors(), other.tensors(), strict=False)
    return len(one.tensors()) == len(other.tensors()) and all(same_values(mine, theirs) for mine, theirs in pairs)


def _refuse_beyond_noise(eager: Outcome, replayed: Outcome, again: Outcome) -> None:
    reason = "replayed, it gives something else than when it is run"
    remedy = "look for values that change on the host between calls"
    if len(eager.tensors()) != len(replayed.tensors()):
        raise Refused(Refusal(reason, None, remedy))
    for place, (mine, theirs, anew) in enumerate(
        zip(eager.tensors(), replayed.tensors(), again.tensors(), strict=True)
    ):
        if same_values(mine, theirs):
            continue
        off, noise = largest_difference(mine, theirs), largest_difference(mine, anew)
        if not off <= _NOISE * noise:
            what = f"tensor {place} of its result" if place < len(eager.given) else "a tensor that it writes"
            raise Refused(Refusal(f"{reason}: {what} differs by up to {off:.3g}", None, remedy))


def agree(subject: Subject, one: Captured, other: Captured, inputs: list[torch.Tensor], saved: Saved) -> bool:
    """Whether two captures give the same bits."""
    saved.restore()
    mine = Outcome(subject.replayed(one, inputs), saved.now())
    saved.restore()
    theirs = Outcome(subject.replayed(other, inputs), saved.memory())
    return _same(mine, theirs)


def fastest(
    subject: Subject, serial: Captured, parallel: list[Captured], inputs: list[torch.Tensor]
) -> tuple[Captured, Times]:
    """Measured in turns. The caller puts the state back afterwards."""
    subject.timed_eager(inputs)
    for captured in (serial, *parallel):
        subject.timed_replay(captured, inputs)
    once = subject.timed_eager(inputs) + sum(subject.timed_replay(each, inputs) for each in (serial, *parallel))
    rounds = max(5, min(25, int(_SECONDS / max(once, 1e-6))))
    eager: list[float] = []
    replays: list[list[float]] = [[] for _ in (serial, *parallel)]
    for turn in range(rounds):
        if turn < 5:  # it is far slower, and needs no such precision
            eager.append(subject.timed_eager(inputs))
        for measured, captured in zip(replays, (serial, *parallel), strict=True):
            measured.append(subject.timed_replay(captured, inputs))
    medians = [statistics.median(times) for times in replays]
    best = min(range(1, len(medians)), key=medians.__getitem__, default=0)
    times = Times(statistics.median(eager), medians[0], medians[best] if best else None, rounds)
    chosen = parallel[best - 1] if best and medians[best] < _MARGIN * medians[0] else serial
    return chosen, times
