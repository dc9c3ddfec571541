"""Verifies CUDA graphs against the eager function. Both run from the same state and on the same inputs. This is done
with the inputs of the call that is captured, and with changed inputs."""

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
from unstall.rounding.agree import Explained, explain, noise, same_values

_TRIES = 10  # runs until one gives other bits
_EAGER = 3  # eager runs, if the order of kernels varies
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
    """The outcome of one run of a function.

    Attributes:
        given: Copies of the results, of the gradients, and of the inputs that the function wrote to.
        memory: Copies of the other memory that the function may have written to.
    """

    given: list[torch.Tensor]
    memory: list[torch.Tensor]

    def tensors(self) -> list[torch.Tensor]:
        return [*self.given, *self.memory]


@dataclass(frozen=True, slots=True)
class Times:
    """Median times in s of eager runs and of replays. Eager runs and replays were measured alternately.

    Attributes:
        eager: The time of an eager run.
        serial: The time of a replay of the graph on one stream.
        parallel: The time of a replay of the fastest graph on several streams. None if there is none.
        rounds: How often each was measured, at most.
    """

    eager: float
    serial: float
    parallel: float | None
    rounds: int


def check(static_call: StaticCall, captured: Captured, inputs: list[torch.Tensor], saved: SavedState) -> bool:
    """Compares a replay of a graph with an eager run. Does not restore the tensors that the runs change.

    Two kinds of differences between replay and eager run are accepted:

    - Some kernels add up in varying order. The bits of their results differ from run to run, both in eager runs and in
      replays. Several replays show how large these differences are.
    - If the function asks whether it is being captured, the function may use different operations in a capture than in
      an eager run to compute the same values. Eager runs with random rounding errors show how large these differences
      may be. If values on the host changed between eager runs, the effect of the errors would appear too large. So
      eager runs must also agree with each other.

    Args:
        static_call: The call, which can run eagerly and as a replay.
        captured: The graph.
        inputs: The input tensors.
        saved: The state from which each run starts.

    Returns:
        Whether all replays from this state give equal bits.

    Raises:
        Refused: The replay and the eager run give different values.
    """
    eager, replayed = _eager(static_call, inputs, saved), _replayed(static_call, captured, inputs, saved)
    if _same(eager, replayed):
        return True
    again = partial(_replayed, static_call, captured, inputs, saved), partial(_eager, static_call, inputs, saved)
    names, asks = _names(static_call, captured, eager), static_call.seen.asks_whether_captured
    if not asks:
        found = _by_order(eager, replayed, *again) if all(map(_varies, (replayed, eager), again)) else None
        if found is None or not found.agrees:
            raise Refused(_mismatch(eager, replayed, found, names, asks=False))
        return False
    found = _steady(eager, replayed, *again)
    if found.agrees:
        found = _by_rounding(eager, replayed, again[1])
    if not found.agrees:
        raise Refused(_mismatch(eager, replayed, found, names, asks=True))
    return _same(replayed, again[0]())


def _by_order(
    eager: Outcome, replayed: Outcome, replay_again: Callable[[], Outcome], eager_again: Callable[[], Outcome]
) -> Explained:
    """Returns whether the difference between eager runs and a replay is at most the difference between replays.

    Three eager runs are compared with the replay. For each element, only the eager value that is nearest to the
    replay's value counts, because in a single run a few elements may be far off.
    """
    nearest = eager.tensors()
    for _ in range(_EAGER - 1):
        nearest = list(map(_nearer, replayed.tensors(), nearest, eager_again().tensors()))
    return explain(replayed.tensors(), nearest, lambda _: replay_again().tensors())


def _nearer(to: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compares `one` and `other` with `to`, element by element. Returns, for each element, the value that is nearer to
    the value of `to`. If the shapes differ, or if `to` has no floating-point values, returns `one`."""
    if not to.is_floating_point() or not to.shape == one.shape == other.shape:
        return one
    near = (other.double() - to.double()).abs() < (one.double() - to.double()).abs()
    return torch.where(near, other, one)


def _steady(
    eager: Outcome, replayed: Outcome, replay_again: Callable[[], Outcome], eager_again: Callable[[], Outcome]
) -> Explained:
    """Returns whether the difference between two eager runs is at most the difference between two replays."""

    def moved(_: int) -> list[torch.Tensor]:
        replays = zip(replayed.tensors(), replay_again().tensors(), strict=False)
        return [_moved(one, *pair) for one, pair in zip(eager.tensors(), replays, strict=False)]

    return explain(eager.tensors(), eager_again().tensors(), moved)


def _moved(tensor: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns `tensor + (other - one)`. Returns `tensor` itself if its dtype is not a floating-point dtype, or if the
    shapes differ."""
    if not tensor.is_floating_point() or not tensor.shape == one.shape == other.shape:
        return tensor
    return (tensor.double() + (other.double() - one.double())).to(tensor.dtype)


def _by_rounding(eager: Outcome, replayed: Outcome, eager_again: Callable[[], Outcome]) -> Explained:
    """Returns whether rounding explains the difference between an eager run and a replay.

    Raises:
        Refused: The function fails when it runs with random rounding errors, so the question cannot be answered.
    """

    def noisy(number: int) -> list[torch.Tensor]:
        with noise(number):
            return eager_again().tensors()

    try:
        return explain(eager.tensors(), replayed.tensors(), noisy)
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        reason = (
            "replayed, it gives other bits than when it is run, and whether that is rounding cannot be measured: with "
            f"random errors, it raises {type(error).__name__}: {said}"
        )
        raise Refused(Refusal(reason, None, _ASKS)) from error


def _eager(static_call: StaticCall, inputs: list[torch.Tensor], saved: SavedState) -> Outcome:
    saved.restore()
    return Outcome(static_call.eager(copies_of(inputs)), saved.now())


def _replayed(static_call: StaticCall, captured: Captured, inputs: list[torch.Tensor], saved: SavedState) -> Outcome:
    saved.restore()
    return Outcome(static_call.replayed(captured, inputs), saved.now())


def _pairs(one: Outcome, other: Outcome) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(one.tensors(), other.tensors(), strict=False))


def _varies(one: Outcome, again: Callable[[], Outcome]) -> bool:
    """Calls `again` up to ten times. Returns whether any of these runs gives other bits than the outcome `one`. Some
    kernels give other bits only in some runs."""
    return any(not _same(one, again()) for _ in range(_TRIES))


def _same(one: Outcome, other: Outcome) -> bool:
    return len(one.tensors()) == len(other.tensors()) and all(starmap(same_values, _pairs(one, other)))


def _names(static_call: StaticCall, captured: Captured, outcome: Outcome) -> list[str]:
    """Returns a description of each tensor of an outcome: a result, a gradient, an argument that the function writes
    to, or another tensor that the function writes to."""
    results, written = len(tensors_in(captured.results[0][0])), len(static_call.written_inputs)
    return [
        *(["its result"] if results == 1 else [f"tensor {place} of its result" for place in range(results)]),
        *["a gradient"] * (len(outcome.given) - results - written),
        *["an argument that it writes"] * written,
        *["a tensor that it writes"] * len(outcome.memory),
    ]


def _mismatch(eager: Outcome, replayed: Outcome, found: Explained | None, names: list[str], *, asks: bool) -> Refusal:
    """Returns a `Refusal` whose reason is that a replay of the graph gives other values than an eager run.

    Args:
        eager: The outcome of the eager run.
        replayed: The outcome of the replay.
        found: Which differences are explained by the order of additions or by rounding. None if this was not examined.
        names: A description of each tensor of an outcome, as `_names` returns.
        asks: Whether the function checks if it is being captured.
    """
    what = "another number of tensors"
    pairs = _pairs(eager, replayed)
    place = found.first if found is not None else None
    if place is None:
        place = next((at for at, pair in enumerate(pairs) if not same_values(*pair)), None)
    if place is not None:
        what = names[place]
        if pairs[place][0].shape == pairs[place][1].shape:
            what += f" differs by up to {largest_difference(*pairs[place]):.3g}"
    reason = f"replayed, it gives something else than when it is run: {what}"
    return Refusal(reason, None, _ASKS if asks else "look for values that change on the host between calls")


def agree(
    static_call: StaticCall, one: Captured, other: Captured, inputs: list[torch.Tensor], saved: SavedState
) -> bool:
    """Replays two captures of a call from the same state on the same inputs. Returns whether they give the same bits.

    Args:
        static_call: The call.
        one: The first capture.
        other: The second capture.
        inputs: The input tensors.
        saved: The state from which both replays start.
    """
    return _same(_replayed(static_call, one, inputs, saved), _replayed(static_call, other, inputs, saved))


def fastest(
    static_call: StaticCall, serial: Captured, parallel: list[Captured], inputs: list[torch.Tensor], saved: SavedState
) -> tuple[Captured, Times]:
    """Times eager runs and replays of all captures of a call, alternately in several rounds. Returns the fastest
    capture and the times. Does not restore the tensors that the runs change.

    Args:
        static_call: The call.
        serial: The capture on one stream.
        parallel: The captures on several streams.
        inputs: The input tensors.
        saved: The state from which each run starts.
    """

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
    """Returns whether the times are so close together that more measurements would add no information."""
    return max(times) - min(times) <= _NOISELESS * max(times)


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.numel() == 0:
        return 0.0
    return float((one.detach().double() - other.detach().double()).abs().max())
