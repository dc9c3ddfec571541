"""Compares the tensors of two runs, and finds the first that differs by more than rounding explains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unstall.rounding.facts import UNIT
from unstall.rounding.matching import matched
from unstall.rounding.samples import Floats, Ran, Seen

RUNS = 8
"""The number of runs with random errors. Student's distribution has a closed form for even numbers only."""
CONFIDENCE = 0.999
"""The probability that no tensor is reported as different, if two runs differ only by rounding."""
_FACTOR_FITS = 0.02  # of a difference, what may be left of it once it is explained by a factor
_ALWAYS = ("result", "value", "weight")  # ends that each run has, whatever it is given
_OF_SUMS = UNIT[torch.float64]  # sums of all elements are added up in this type
_SUM_ERRORS = 32.0
"""The largest difference between two sums of the same elements, made on two devices, that counts as
rounding.

The unit is a float64 roundoff of the root of the sum of the squared elements. The value is sqrt(n /
9), for n = 9,216 terms that are added one after another.
"""
_BIN = 16.0  # elements whose sizes are within this factor are judged together


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor of a run, compared with the same tensor of another run.

    Two things are compared: the stored elements of the tensor, in groups of similar size, and the
    sum of all its elements. The figures are those of one group, or of the sum: the one whose
    difference is largest compared with rounding. For a group, `difference`, `rounding` and `size`
    are root mean squares.

    Attributes:
        before: The tensor in the first run; None if this run has no such tensor.
        after: The tensor in the second run; None if this run has no such tensor.
        difference: How much the two runs differ; inf if they cannot be compared, or if elements are
            finite in only one run.
        rounding: How much rounding makes two runs differ, as runs with random errors tell.
        size: How large the elements are in the first run.
        count: Number of elements in the group; 0 if the figures are those of the sum.
        typical: `(difference, rounding, size)` over all stored elements, as root mean squares.
    """

    before: Seen | None
    after: Seen | None
    difference: float
    rounding: float
    size: float
    count: int = 0
    typical: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def seen(self) -> Seen:
        """The tensor in the first run, or in the second run if the first has no such tensor."""
        found = self.before or self.after
        assert found is not None
        return found

    @property
    def is_end(self) -> bool:
        """Whether the tensor is an output of the run: a result, a gradient, or an argument after
        the run. Arguments before the run and results of operators are not. In a recorded program,
        values that it read and weights that it wrote are outputs.
        """
        return self.seen.kind not in ("given", "operator")

    @property
    def share(self) -> float:
        """`difference` divided by `rounding`."""
        return self.difference / self.rounding if self.rounding else math.inf if self.difference else 0.0


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs, compared tensor by tensor.

    Attributes:
        pairs: The tensors of both runs, in the order of the first run. Results that only one run
            has are included.
        first: The first pair that differs by more than rounding. None if all results agree, even if
            some operators differ: different operators may compute the same results.
        last: The pair just before `first` in `pairs`; None if there is none.
        added: Results of the operators that only the second run calls between `last` and `first`.
        limit: The largest `share` (difference divided by rounding) of a pair that rounding
            explains.
        equal: Whether both runs call the same operators, and all pairs are equal bit for bit.
    """

    pairs: tuple[Pair, ...]
    first: Pair | None
    last: Pair | None
    added: tuple[Seen, ...]
    limit: float
    equal: bool

    @property
    def other_bits(self) -> Pair | None:
        """The first pair that is not equal bit for bit; None if there is none."""
        return next((pair for pair in self.pairs if pair.difference > 0), None)


@dataclass(frozen=True, slots=True)
class Errors:
    """How far rounding moves the tensors of a run, as root mean squares over runs with random
    errors.

    The errors of a tensor are an array: one error for each stored element, then the error of the
    sum of all elements. An error is nan if no run has a finite value of it. An *end* is an output
    of a run: a result, a gradient, or an argument after the run.

    Attributes:
        operators: The errors of each operator's result, in order; None in place of a result that no
            run with random errors has in this shape. All of it is None if a run with random errors
            called other operators: then only ends can be judged.
        ends: The errors of each end, by its kind and name; None if no run with random errors has
            the end in this shape.
        vary: Whether a run with random errors has other ends than the run without. If so, only ends
            that all runs have can be judged.
    """

    operators: tuple[Floats | None, ...] | None
    ends: dict[tuple[str, str], Floats | None]
    vary: bool = False

    @staticmethod
    def of(before: Ran, noisy: Sequence[Ran]) -> Errors:
        """Returns the errors of the run `before`. `noisy` are repetitions of this run with random errors."""
        keys = [seen.key for seen in before.operators]
        follows = all([seen.key for seen in ran.operators] == keys for ran in noisy)
        operators = (
            tuple(_errors(seen, [ran.operators[at] for ran in noisy]) for at, seen in enumerate(before.operators))
            if follows
            else None
        )
        ends = {
            key: _errors(seen, [ran.ends[key] for ran in noisy if key in ran.ends]) for key, seen in before.ends.items()
        }
        return Errors(operators, ends, vary=any(ran.ends.keys() != before.ends.keys() for ran in noisy))


class Judge:
    """Compares runs with a first run, and tells what rounding explains.

    Args:
        before: The first run.
        errors: How far rounding moves the tensors of `before`, or repetitions of `before` with
            random errors.
        among: If `before` has only the tensors that differ: how many tensors there are in all, or
            how many elements if `alone` is True. The more there are, the larger a difference can be
            by chance. 0 if `before` has all tensors.
        alone: Whether each element is judged by itself, not in a group of elements of similar size.
            An element without finite errors then counts as exact.
    """

    def __init__(self, before: Ran, errors: Errors | Sequence[Ran], *, among: int = 0, alone: bool = False) -> None:
        self.before = before
        self.errors = errors if isinstance(errors, Errors) else Errors.of(before, errors)
        self._alone = alone
        self._limit = student((1 - CONFIDENCE) / max(2 * max(among, len(before)), 1), RUNS)

    @property
    def changes_arguments(self) -> bool:
        """Whether the first run changed one of its arguments."""
        given, ends = self.before.given, self.before.ends
        after = ((seen, ends["after", name]) for name, seen in given.items() if ("after", name) in ends)
        return any(not np.array_equal(one.values, other.values, equal_nan=True) for one, other in after)

    def compare(self, after: Ran) -> Compared:
        """Returns the comparison of the run `after` with the first run."""
        ends = list(self._ends(after))
        places = list(self._matched(after.operators)) if self.errors.operators is not None else []
        inside = [self._pair(one, after.operators[other]) for one, other in places]
        differs = any(pair.share > self._limit for pair in ends or inside)
        pairs = [*self._given(after.given), *inside, *ends]
        first = next((at for at, pair in enumerate(pairs) if differs and pair.share > self._limit), None)
        start = len(pairs) - len(ends) - len(inside)
        added: tuple[Seen, ...] = ()
        if first is not None and start <= first <= start + len(inside):
            at = first - start
            last = places[at - 1][1] + 1 if at else 0
            added = after.operators[last : places[at][1] if at < len(places) else None]
        return Compared(
            pairs=tuple(pairs),
            first=pairs[first] if first is not None else None,
            last=pairs[first - 1] if first else None,
            added=added,
            limit=self._limit,
            equal=self._all_are_matched(len(inside), after) and all(map(_is_equal, pairs)),
        )

    def _all_are_matched(self, matched: int, after: Ran) -> bool:
        """Returns whether the operators of the two runs belong together one to one, with none left
        over.

        `matched` is the number of pairs. If a run was not recorded to its end, operators after that
        end do not count.
        """
        counts = len(self.before.operators), len(after.operators)
        both_are_whole = self.before.complete and after.complete
        return matched == (max(counts) if both_are_whole else min(counts))

    def _given(self, after: Mapping[str, Seen]) -> Iterator[Pair]:
        for name, seen in self.before.given.items():
            if name in after:
                yield _pair(seen, after[name], None)

    def _ends(self, after: Ran) -> Iterator[Pair]:
        both_are_whole = self.before.complete and after.complete
        names = self.before.given.keys() & after.given.keys()  # another function may have other parameters
        alike = names or not self.before.given
        for key, seen in {**after.ends, **self.before.ends}.items():
            before, other = self.before.ends.get(key), after.ends.get(key)
            if self.errors.vary and self.errors.ends.get(key) is None:
                continue
            if before is not None and other is not None:
                yield _pair(before, other, self.errors.ends.get(key), alone=self._alone)
            elif both_are_whole and not self.errors.vary and (key[0] in _ALWAYS or (alike and key[1] in names)):
                yield Pair(before, other, math.inf, 0.0, _rms(seen.values))

    def _matched(self, after: Sequence[Seen]) -> Iterator[tuple[int, int]]:
        def agree(at: int, other: int) -> bool:
            return self._pair(at, after[other]).share <= self._limit

        return matched(self.before.operators, after, agree)

    def _pair(self, at: int, after: Seen) -> Pair:
        assert self.errors.operators is not None
        return _pair(self.before.operators[at], after, self.errors.operators[at])


def _errors(seen: Seen, noisy: Sequence[Seen]) -> Floats | None:
    """Returns the errors of one tensor: for each stored element and then for the sum of all
    elements, the root mean square over the runs `noisy`.

    An error is nan if it is finite in no run. Returns None if no run has the tensor in the shape of
    `seen`.
    """
    alike = [_figures(each) for each in noisy if each.shape == seen.shape]
    if not alike:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(np.stack(alike) - _figures(seen))
    finite = np.isfinite(errors)
    count = finite.sum(axis=0)
    errors = np.where(finite, errors, 0.0)
    most = np.maximum(errors.max(axis=0, initial=0.0), 1e-300)  # squares of very large values would overflow
    total = np.square(errors / most).sum(axis=0)
    known: Floats = most * np.sqrt(np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))
    return known


def _figures(seen: Seen) -> Floats:
    return np.append(seen.values, seen.total)


def _pair(before: Seen, after: Seen, errors: Floats | None, *, alone: bool = False) -> Pair:
    if before.shape != after.shape or len(before.values) != len(after.values):
        return Pair(before, after, math.inf, 0.0, _rms(before.values))
    one, other = _figures(before), _figures(after)
    nowhere_finite = np.isnan(one) & np.isnan(other)
    nowhere_finite[-1] |= not math.isfinite(one[-1]) and not math.isfinite(other[-1])
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where((one == other) | nowhere_finite, 0.0, one - other)
    if not np.isfinite(difference).all():
        return Pair(before, after, math.inf, 0.0, _rms(before.values[np.isfinite(before.values)]))
    sizes = np.abs(np.where(np.isfinite(one), one, 0.0))
    sizes[-1] = _rms(sizes[:-1]) * math.sqrt(math.prod(before.shape))  # signs are random
    # Errors are those of both runs. A constant may have been rounded, too, but not in what both are given.
    unit = 0.0 if errors is None else UNIT.get(before.dtype, 0.0)
    known = np.zeros(len(one)) if errors is None else np.nan_to_num(errors) if alone else errors
    finer = UNIT.get(after.dtype, 0.0) <= UNIT.get(before.dtype, 0.0)
    rounding = np.hypot(known * math.sqrt(2 if finer else 1), unit * sizes)
    of_sum = _OF_SUMS * sizes[-1]
    if not difference[:-1].any() and abs(difference[-1]) <= _SUM_ERRORS * of_sum:
        difference[-1] = 0.0
    rounding[-1] = math.hypot(rounding[-1], of_sum)
    judged = np.isfinite(known) & np.isfinite(one)
    elements = np.append(judged[:-1], False)
    typical = _rms(difference[elements]), _rms(rounding[elements]), _rms(sizes[elements])
    pairs = (
        Pair(
            before,
            after,
            _rms(difference[part]),
            _rms(rounding[part]),
            _rms(sizes[part]),
            count=0 if part[-1] == len(one) - 1 else len(part),
            typical=typical,
        )
        for part in (np.flatnonzero(judged[:-1])[:, None] if alone else _parts(sizes, judged))
    )
    return max(pairs, key=lambda pair: (pair.share, pair.difference), default=Pair(before, after, 0.0, 0.0, 0.0))


def _parts(sizes: Floats, judged: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """Yields arrays of positions. What stands at the positions of one array is judged together.

    There is one array for each group of elements of similar size, and one for the sum of all
    elements, which stands at the last position.
    """
    if judged[:-1].any():
        least = max(float(np.max(sizes[:-1][judged[:-1]])) * _BIN**-20, 1e-300)
        numbers = np.floor(np.log(np.maximum(sizes, least), where=judged, out=np.zeros(len(sizes))) / math.log(_BIN))
        numbers[-1] = np.nan
        for number in np.unique(numbers[:-1][judged[:-1]]):
            yield np.flatnonzero(judged & (numbers == number))
    if judged[-1]:
        yield np.array([len(sizes) - 1])


def factor_of(found: Compared) -> float | None:
    """Returns the number by which the first tensor that differs was multiplied: the tensor of the
    second run is about this number times that of the first run. None if there is no such number.

    If there is none for this tensor, it is looked for between the last tensor that agrees and the
    results of the operators that only the second run calls.
    """
    if found.first is None or found.first.before is None or found.first.after is None:
        return None
    changes = [(found.first.before, found.first.after)]
    if found.last is not None and found.last.before is not None:
        changes += [(found.last.before, each) for each in found.added]
    factors = (_factor(one.values, other.values) for one, other in changes if len(one.values) == len(other.values))
    return next((factor for factor in factors if factor is not None), None)


def _factor(one: Floats, other: Floats) -> float | None:
    if not np.isfinite(one).all() or not np.isfinite(other).all() or not one.any():
        return None
    factor = float(one @ other / (one @ one))
    left, difference = _rms(other - factor * one), _rms(other - one)
    return factor if factor and left < _FACTOR_FITS * difference else None


def _is_equal(pair: Pair) -> bool:
    return (
        pair.before is not None
        and pair.after is not None
        and pair.difference == 0
        and pair.before.dtype == pair.after.dtype
    )


def _rms(values: Floats) -> float:
    most = float(np.max(np.abs(values))) if len(values) else 0.0  # squares of very large values would overflow
    return most * float(np.sqrt(np.mean(np.square(values / most)))) if most else 0.0


def student(probability: float, freedom: int) -> float:
    """Returns the value x for which |t| exceeds x with the given probability, if t has Student's
    distribution.

    `freedom` is the number of degrees of freedom, and must be even. Source: Abramowitz and Stegun,
    26.7.4.
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
