"""Decides whether rounding explains the differences between two lists of tensors.

Some elements of each tensor are stored, not all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from unstall.rounding.facts import UNIT, is_plain, real_parts
from unstall.rounding.judge import RUNS, Judge
from unstall.rounding.noise import Noise
from unstall.rounding.operators import NOWHERE, Operators
from unstall.rounding.samples import ENDS, Kept, Ran

Tensors = Sequence[torch.Tensor]
_KEPT = 1 << 22  # elements of a run, of all tensors together
_FARTHEST = 32  # elements of a tensor that differ most
_CHUNK = 1 << 24  # elements that are compared at once


@dataclass(frozen=True, slots=True)
class Explained:
    """Whether rounding explains the differences between two lists of tensors.

    Elements of similar size are judged together, as a group. Each group has its own limit. The
    figures are those of one group: if rounding explains all differences, the group that comes
    nearest to its limit; otherwise, the group of the tensor `first` that exceeds its limit most.

    Attributes:
        agrees: Whether rounding explains all differences.
        first: The index of the first tensor with a difference that rounding does not explain; None
            if there is none.
        difference: The root mean square of the differences of the group's elements; inf if tensors
            cannot be compared.
        limit: The largest `difference` of this group that rounding explains.
        measured: Whether random errors changed all the tensors that differ. If they did not, the
            limit includes only the rounding of the elements themselves.
    """

    agrees: bool
    first: int | None = None
    difference: float = 0.0
    limit: float = 0.0
    measured: bool = True

    @property
    def share(self) -> float:
        """`difference` divided by `limit`. Rounding explains what is at most 1."""
        return self.difference / self.limit if self.limit else math.inf if self.difference else 0.0


def explain(reference: Tensors, other: Tensors, again: Callable[[int], Tensors]) -> Explained:
    """Returns whether rounding explains the differences between two lists of tensors.

    Tensors that are equal bit for bit agree; NaN equals NaN. Tensors of different shapes or types
    never agree, and neither do integers that differ. All other tensors are judged twice: by groups
    of elements of similar size, and by the elements that differ most, each alone. If all
    differences come from rounding, each of the two judgments still reports a difference with a
    probability of 0.1 %.

    Args:
        reference: The tensors of one run.
        other: The tensors to compare with `reference`.
        again: A function that repeats the run of `reference` with random errors, and returns the
            tensors of the repeated run. Such errors come from `noise(number)`, or from kernels that
            add up in an order that varies. If the two lists differ, the function is called 8 times,
            with the numbers 0 to 7.
    """
    if len(reference) != len(other):
        return Explained(False, None, math.inf)
    apart = [
        place
        for place, (one, its) in enumerate(zip(reference, other, strict=True))
        if one is not its and not same_values(one, its)
    ]
    if not apart:
        return Explained(True)
    strange = next((place for place in apart if not _is_judged(reference[place], other[place])), None)
    if strange is not None:
        return Explained(False, strange, math.inf)
    picker = _Picker(reference, other, apart)
    before, after = picker.kept(reference), picker.kept(other)
    noisy = [picker.kept(again(number)) for number in range(RUNS)]
    measured = all(
        any(key in ran.ends and not np.array_equal(ran.ends[key].values, seen.values, equal_nan=True) for ran in runs)
        for (key, seen), runs in ((item, [each[0] for each in noisy]) for item in before[0].ends.items())
    )
    judges = (
        Judge(before[0], [each[0] for each in noisy], among=len(reference)),
        Judge(before[1], [each[1] for each in noisy], among=picker.elements, alone=True),
    )
    found: list[Explained] = []
    for judge, mine in zip(judges, after, strict=True):
        compared = judge.compare(mine)
        for pair in compared.pairs:
            limit = pair.rounding * compared.limit
            agrees = pair.share <= compared.limit
            place = int(pair.seen.name)
            found.append(Explained(agrees, None if agrees else place, pair.difference, limit, measured))
    beyond = [each for each in found if each.first is not None]
    if beyond:
        first = min(each.first for each in beyond if each.first is not None)
        return max((each for each in beyond if each.first == first), key=lambda each: each.share)
    return max(found, key=lambda each: each.share)


def noise(number: int) -> Operators:
    """Returns a context manager. Within it, each operator's result gets random errors, as large as
    the operator's rounding errors.

    `number` is the seed of the errors.
    """
    return Operators(call=Noise(number).call)


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors have the same shape, dtype and elements; NaN equals NaN. The host
    waits for the device.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_floating_point() or one.is_complex():
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return bool((one == other).all())


class _Picker:
    """Selects elements of the tensors that differ: a sample, and the elements that differ most.

    The positions of the sample depend only on the shape of a tensor.
    """

    def __init__(self, reference: Tensors, other: Tensors, apart: list[int]) -> None:
        self.elements = sum(each.numel() * (2 if each.is_complex() else 1) for each in reference)
        self._shapes = {place: reference[place].shape for place in apart}
        self._most = max(1, min(ENDS, _KEPT // len(apart)))
        self._farthest = {place: _farthest(reference[place], other[place]) for place in apart}

    def kept(self, tensors: Tensors) -> tuple[Ran, Ran]:
        """Returns `(sample, farthest)`: the selected elements of `tensors`, which may be those of a repeated run."""
        some, farthest = Kept(), Kept()
        for place, where in self._farthest.items():
            if place < len(tensors) and tensors[place].shape == self._shapes[place]:
                flat = real_parts(tensors[place].detach()).reshape(-1)
                some.keep("result", str(place), NOWHERE, tensors[place], self._most)
                farthest.keep("result", str(place), NOWHERE, flat[where], _FARTHEST)
        return _ran(some), _ran(farthest)


def _ran(kept: Kept) -> Ran:
    return Ran({}, (), {(each.kind, each.name): each for each in kept.seen()})


def _is_judged(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and one.dtype in UNIT
        and is_plain(one)
        and is_plain(other)
    )


def _farthest(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns the positions, in the flat tensors, of the elements that differ most; at most 32."""
    flat = [real_parts(each.detach()).reshape(-1) for each in (one, other)]
    gaps, places = [], []
    for start in range(0, len(flat[0]), _CHUNK):
        a, b = (each[start : start + _CHUNK].to(torch.float64) for each in flat)
        same = (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
        top = gap.topk(min(_FARTHEST, len(gap)))
        gaps.append(top.values)
        places.append(top.indices + start)
    return torch.cat(places)[torch.cat(gaps).argsort(descending=True)[:_FARTHEST]]
