"""Runs a function again in two ways (for example on two devices), and finds the pattern by which
the first tensor that differs does so.

These runs store whole tensors, and not only some of their elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from unstall.numbers.patterns import LEAST, Pattern, left_of, pattern_of, rms
from unstall.numbers.run import run
from unstall.numbers.ways import Way
from unstall.rounding.facts import real_parts
from unstall.rounding.judge import Compared, Pair
from unstall.rounding.operators import Place
from unstall.rounding.samples import ENDS, SAMPLES, Kept, Ran, Seen, positions

MOST = 1 << 20
"""The largest number of elements that are stored of a tensor. Of a larger tensor, only the first rows are stored."""
_ADDED = 3  # operators of one way only that are looked at
_SAME = 0.01  # by the difference between the ways, how much a run may differ from the one before

Key: TypeAlias = tuple[str, str | int]
"""Identifies a tensor of a run: (kind, name), or ("operator", number) for the result of the
operator with this number.
"""


@dataclass(frozen=True, slots=True)
class Runs:
    """Two runs of a function, and their comparison."""

    before: Ran
    after: Ran
    found: Compared


def pattern_at(runs: Runs, base: Callable[[], Way], other: Callable[[], Way]) -> Pattern | None:
    """Finds the first tensor that differs between two ways of running a function, and returns the
    pattern by which it differs. Returns None if no pattern explains the difference.

    Both ways run again to get the whole tensor. If the tensor has no pattern, the cause may be an
    earlier operator that only the second way calls. Its result is then compared with the last
    tensors on which both ways still agree. If there is a pattern between the result and one of
    these tensors, the pattern is checked: the first way runs once more, with this result in place
    of that tensor. The pattern is returned only if the run then gives what the second way gives.

    Args:
        runs: The two runs, and their comparison.
        base: Prepares the first way. It is called anew for each run.
        other: Prepares the second way. It is called anew for each run.
    """
    first = runs.found.first
    if first is None or first.before is None or first.after is None or first.before.shape != first.after.shape:
        return None
    here, there = _key(runs.before, first.before), _key(runs.after, first.after)
    added = {_key(runs.after, each): each for each in runs.found.added[-_ADDED:]}
    agreeing = _agreeing(runs) if added else []
    ones, others = _whole(base(), (here, *agreeing)), _whole(other(), (there, *added))
    if here not in ones or there not in others or ones[here].shape != others[there].shape:
        return None
    if not _is_again(first.before, ones[here], first):
        return None
    if not _is_again(first.after, others[there], first):
        return Pattern("varies", "Its values in this way are others in each run, as those of memory that is not set.")
    near = _near(ones[here], first, runs.found.limit)
    found = pattern_of(ones[here], others[there], near)
    if found is not None and (found.kind != "part" or "within" in found.data):
        return found
    for key, seen in added.items():
        for source in agreeing:
            cause = _cause(seen, ones.get(source), others.get(key))
            if cause is None:
                continue
            instead = _whole(base(), (here,), {source: others[key]})[here]
            left = left_of(_finite(others[there] - instead), _finite(others[there] - ones[here]), near)
            if left is not None:
                return replace(cause, sentence=f"{seen.name}, which only this way calls: {cause.sentence}", left=left)
    return found


def _agreeing(runs: Runs) -> list[Key]:
    """Returns the keys of the last few tensors before the first tensor that differs, in reverse order."""
    pairs = runs.found.pairs
    at = next(at for at, pair in enumerate(pairs) if pair is runs.found.first)
    agreeing = (pair.before for pair in reversed(pairs[max(0, at - _ADDED) : at]))
    return [_key(runs.before, each) for each in agreeing if each is not None]


def _cause(seen: Seen, one: Tensor | None, other: Tensor | None) -> Pattern | None:
    """Returns the pattern by which an operator's result `other` differs from the tensor `one`.
    Returns None if there is none, or if a tensor is None.
    """
    if one is None or other is None or _is_cut(seen) or one.numel() != other.numel():
        return None
    return pattern_of(one.reshape(other.shape), other, torch.zeros(()).expand(other.shape))


def _key(ran: Ran, seen: Seen) -> Key:
    if seen.kind != "operator":
        return seen.kind, seen.name
    return "operator", next(at for at, each in enumerate(ran.operators) if each is seen)


def tells_factor(found: Compared) -> bool:
    """Returns whether `pattern_at` can see that a tensor of one run is a multiple of the same
    tensor of the other run, such as twice as large.

    `pattern_at` can see it if the tensors have enough elements, and are small enough to be stored
    whole.
    """
    first = (found.first.before, found.first.after) if found.first is not None else ()
    at = [each for each in (*first, *found.added) if each is not None]
    return all(LEAST <= math.prod(each.shape) <= MOST for each in at)


def _is_cut(seen: Seen) -> bool:
    return math.prod(seen.shape) > MOST


def _near(values: Tensor, pair: Pair, limit: float) -> Tensor:
    """Returns how much rounding may change each element of `values`.

    The amount is proportional to the element's size. An element below the usual size gets the
    amount for the usual size.
    """
    sizes = values.abs().double() / pair.size if pair.size else torch.zeros(values.shape, dtype=torch.float64)
    return torch.where(sizes.isfinite(), sizes, 1.0).clamp(min=1.0) * (limit * pair.rounding)


def _is_again(seen: Seen, whole: Tensor, pair: Pair) -> bool:
    """Returns whether the tensor `whole` of a new run has about the same values as in the earlier run. Compares the
    elements in `seen`, which the earlier run stored.

    If the tensor is too large to store whole, returns True without a check.
    """
    if _is_cut(seen):
        return True
    at = positions(whole.numel(), whole.device, SAMPLES if seen.kind == "operator" else ENDS)
    values, now = torch.from_numpy(seen.values), whole.take(at).double()
    alike = (values == now) | (values.isnan() & now.isnan())
    difference = torch.where(alike, 0.0, values - now)
    return rms(difference) <= max(_SAME * min(pair.difference, 1e300), 2 * pair.rounding)


def _finite(difference: Tensor) -> Tensor:
    return torch.where(difference.isfinite(), difference.double(), 0.0)


def _whole(taken: Way, wanted: Iterable[Key], instead: Mapping[Key, Tensor] | None = None) -> dict[Key, Tensor]:
    """Runs a function, and returns copies of the wanted tensors on the CPU. Of a very large tensor, copies only the
    first rows.

    Args:
        taken: The function.
        wanted: The keys of the wanted tensors.
        instead: Values that replace the tensors with these keys during the run.
    """
    kept: dict[Key, Tensor] = {}
    run(taken, new=lambda: _Whole(frozenset(wanted), instead or {}, kept))
    return kept


class _Whole(Kept):
    """Stores the elements that `Kept` stores: a few of each tensor. Also stores the wanted tensors as a whole."""

    def __init__(self, wanted: frozenset[Key], instead: Mapping[Key, Tensor], kept: dict[Key, Tensor]) -> None:
        super().__init__()
        self._wanted, self._instead, self._whole = wanted, instead, kept

    def keep_all(
        self, kind: str, name: str, place: Place, tensors: Sequence[Tensor], most: int, terms: int = 0
    ) -> None:
        first = len(self)
        super().keep_all(kind, name, place, tensors, most, terms)
        for number, each in enumerate(tensors, first):
            key: Key = (kind, number if kind == "operator" else name)
            real = real_parts(each.detach())
            if key in self._instead:
                real.copy_(self._instead[key].reshape(real.shape))
            if key in self._wanted:
                self._whole[key] = _rows(real).cpu().clone()


def _rows(tensor: Tensor) -> Tensor:
    """Returns the first rows of a tensor. The returned part has at most about `MOST` (2**20) elements."""
    for dim in range(tensor.dim()):
        if tensor.numel() > MOST:
            each = tensor.numel() // tensor.shape[dim]
            tensor = tensor.narrow(dim, 0, max(1, MOST // each))
    return tensor
