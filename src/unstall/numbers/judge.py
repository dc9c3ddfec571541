"""Compares what was seen in two runs: where they first part by more than the errors of their arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from unstall.numbers.noise import UNIT, is_drawn
from unstall.numbers.run import Seen

RUNS = 8
"""Runs with random errors. An even number, since Student's distribution then has a closed form."""
CONFIDENCE = 0.999
"""The probability that no tensor of two runs is said to differ if all that differs is rounding."""
_FACTOR_FITS = 0.02  # of a difference, what may be left of it once it is explained by a factor


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor in two runs.

    Attributes:
        before, after: What was seen of it.
        difference: The root mean square of the difference of its elements. inf if only one is finite.
        rounding: The difference that rounding explains: the root mean square of that of two runs with random errors.
        size: The root mean square of its elements in the first run.
    """

    before: Seen
    after: Seen
    difference: float
    rounding: float
    size: float

    @property
    def is_end(self) -> bool:
        """Whether it is a result or a gradient."""
        return self.before.kind in ("result", "gradient")

    def is_beyond(self, limit: float) -> bool:
        """Returns whether the difference is more than `limit` times what rounding explains."""
        return self.difference > limit * self.rounding


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs.

    Attributes:
        pairs: The tensors that both have, in the order of the first run.
        first: The first one that differs by more than rounding; None if all results and gradients agree. Then what
            differs on the way is computed otherwise, such as sums of another layout.
        last: The last one before `first` that both runs have. None if there is none.
        added: What only the second run has between `last` and `first`: operators that the first one did not call there.
        limit: How many times the difference that rounding explains is still rounding.
        equal: Whether all that was seen is equal bit for bit.
    """

    pairs: tuple[Pair, ...]
    first: Pair | None
    last: Pair | None
    added: tuple[Seen, ...]
    limit: float
    equal: bool


def compared(before: Sequence[Seen], after: Sequence[Seen], noisy: Sequence[Sequence[Seen]]) -> Compared:
    """Compares two runs. `noisy`: runs as the first one, with random errors."""
    limit = student((1 - CONFIDENCE) / max(len(before), 1), RUNS)

    def pair(one: int, other: int) -> Pair:
        return _pair(before[one], after[other], [run[one] for run in noisy])

    def agrees(one: int, other: int) -> bool:
        return before[one].loose_key == after[other].loose_key and not pair(one, other).is_beyond(limit)

    matched = list(_matched(before, after, agrees))
    pairs = [pair(*places) for places in matched]
    differs = any(each.is_end and each.is_beyond(limit) for each in pairs)
    first = next((at for at, each in enumerate(pairs) if differs and each.is_beyond(limit)), None)
    added: tuple[Seen, ...] = ()
    if first is not None:
        start = matched[first - 1][1] + 1 if first else 0
        added = tuple(after[start : matched[first][1]])
    return Compared(
        pairs=tuple(pairs),
        first=pairs[first] if first is not None else None,
        last=pairs[first - 1] if first else None,
        added=added,
        limit=limit,
        equal=len(pairs) == len(before) == len(after) and all(_same_bits(each) for each in pairs),
    )


def _matched(
    before: Sequence[Seen], after: Sequence[Seen], agrees: Callable[[int, int], bool]
) -> Iterator[tuple[int, int]]:
    """Yields the places of tensors that both runs have.

    Where operators differ, as kernels of attention on the CPU and on a GPU do, or a product with and without a sum,
    only tensors that agree are known to be the same.
    """
    keys = [seen.key for seen in before], [seen.key for seen in after]
    for tag, start, end, other, other_end in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(range(start, end), range(other, other_end), strict=True)
        elif tag == "replace":
            next_one = other
            for at in range(start, end):
                found = next((each for each in range(next_one, other_end) if agrees(at, each)), None)
                if found is not None:
                    next_one = found + 1
                    yield at, found


def _pair(before: Seen, after: Seen, noisy: Sequence[Seen]) -> Pair:
    one, other = before.values, after.values
    finite = np.isfinite(one) & np.isfinite(other)
    alike = finite | (one == other) | (np.isnan(one) & np.isnan(other))
    errors = [run.values[finite] - one[finite] for run in noisy if len(run.values) == len(one)]
    units = UNIT[after.dtype] / UNIT[before.dtype]  # errors are those of both runs
    of_noise = _rms(np.concatenate(errors)) * math.hypot(1, max(units, 2.0**-29)) if errors else 0.0
    return Pair(
        before, after, _rms(one[finite] - other[finite]) if alike.all() else math.inf, of_noise, _rms(one[finite])
    )


def factor_of(found: Compared) -> float | None:
    """Returns the factor by which all elements of the first tensor that differs do so, or by which an added operator
    multiplies the last one that does not; None if there is no such factor.
    """
    if found.first is None:
        return None
    changes = [(found.first.before.values, found.first.after.values)]
    if found.last is not None:
        last = found.last.before
        changes += [(last.values, each.values) for each in found.added if each.shape == last.shape]
    return next((factor for factor in map(_factor, *zip(*changes, strict=True)) if factor is not None), None)


def _factor(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    if not np.isfinite(one).all() or not np.isfinite(other).all() or not one.any():
        return None
    factor = float(one @ other / (one @ one))
    left, difference = _rms(other - factor * one), _rms(other - one)
    return factor if left < _FACTOR_FITS * difference else None


def is_random(pair: Pair) -> bool:
    """Returns whether a tensor is drawn at random."""
    return pair.before.kind == "operator" and is_drawn(pair.before.name)


def _same_bits(pair: Pair) -> bool:
    return pair.before.dtype == pair.after.dtype and np.array_equal(
        pair.before.values, pair.after.values, equal_nan=True
    )


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0


def student(probability: float, freedom: int) -> float:
    """Returns the value that Student's distribution with an even number of degrees of freedom exceeds, in either
    direction, with this probability. Source: Abramowitz and Stegun, 26.7.4.
    """

    def beyond(value: float) -> float:
        cosine = freedom / (freedom + value * value)
        term, total = 1.0, 1.0
        for k in range(1, freedom // 2):
            term *= cosine * (2 * k - 1) / (2 * k)
            total += term
        return 1 - total * value / math.sqrt(freedom + value * value)

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > probability else (low, middle)
    return high
