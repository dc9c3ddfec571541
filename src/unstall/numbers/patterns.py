"""Finds the pattern by which a tensor differs between two runs. Examples of patterns are a factor, a shift and another
order of rows.

A pattern is reported only if it explains the difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unstall.numbers.parts import Part, parts_of

LEAST = 8
"""A factor, an offset or a shift is looked for only among at least this number of elements."""
_LEFT = 0.01  # of a difference, what may be left of it once it is explained, apart from rounding
_MOST_LEFT = 0.1  # the same, if what is left is rounding
_OFF = 0.05  # of an element's own difference, what may be left of it
_MOST_OFF = 0.01  # of the elements, how many may have more left
_TRIED = 3  # the shifts that are tried first, in either direction; and peaks of the correlation
_PICKED = 512  # elements that are looked at before all are
_LINES = 1 << 20  # elements of the lines whose correlation is computed
_DIMENSIONS = 4  # up to which all orders of dimensions are tried
_WIDE = 4  # elements of a row from which its order is no accident of sorted values
_COARSER = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern by which the elements of a tensor differ between two runs.

    Attributes:
        kind: "not finite", "zero", "constant", "missing" (0 in the first run only), "sign",
            "factor", "offset", "type", "shift", "transposed", "order", "part" (only some elements
            differ), or "varies" (from run to run).
        sentence: A sentence that says how the elements differ.
        left: How much of the difference the pattern does not explain, as a ratio of root mean
            squares.
        data: Numbers of the pattern by name, such as the factor or the dimension.
    """

    kind: str
    sentence: str
    left: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_factor(self) -> bool:
        """Whether all elements, or the elements of a part, differ by a factor or by their sign."""
        return {self.kind, self.data.get("within", {}).get("kind")} & {"factor", "sign"} != set()


@dataclass(frozen=True, slots=True)
class _Guess:
    """A guess of how elements differ. `says` is a phrase that follows "All elements"."""

    kind: str
    says: str
    data: Mapping[str, Any] = field(default_factory=dict)


def pattern_of(before: Tensor, after: Tensor, near: Tensor) -> Pattern | None:
    """Returns the pattern by which a tensor differs between two runs. Returns None if no pattern
    explains the difference.

    Args:
        before: The tensor in the first run.
        after: The tensor in the second run.
        near: How much rounding may change each element.
    """
    if before.shape != after.shape or not before.numel():
        return None
    one, other = before.double(), after.double()
    alike = (one == other) | (one.isnan() & other.isnan())
    # What is not finite in both takes no part.
    one, other = (torch.where(alike & ~each.isfinite(), 0.0, each) for each in (one, other))
    near = near.double()
    found = _told(one, other, near)
    if found is not None:
        guess, left = found
        return Pattern(guess.kind, f"All elements {guess.says}.", left, guess.data)
    part = parts_of(one, other, near)
    return _of_part(part, one, other, near) if part is not None else None


def _of_part(part: Part, one: Tensor, other: Tensor, near: Tensor) -> Pattern | None:
    found = _told(*(part.of(each) for each in (one, other, near)))
    if found is None:
        return Pattern("part", part.sentence, 0.0, part.data) if part.is_told else None
    guess, left = found
    within = {"kind": guess.kind, **guess.data}
    return Pattern("part", f"{part.sentence} There, they {guess.says}.", left, {**part.data, "within": within})


def _told(one: Tensor, other: Tensor, near: Tensor) -> tuple[_Guess, float] | None:
    """Finds the first guess that explains how all elements differ.

    Returns:
        (guess, share): the guess, and the share of the difference that the guess does not explain. None if no guess
        explains the difference.
    """
    if bool((~other.isfinite()).all()) and bool(one.isfinite().all()):
        name = "NaN" if bool(other.isnan().all()) else "infinite" if bool(other.isinf().all()) else "not finite"
        return _Guess("not finite", f"are {name}"), 0.0
    if not bool(one.isfinite().all() & other.isfinite().all()):
        return None
    difference = other - one
    for guess, explained in itertools.chain(_by_value(one, other, near), _by_place(one, other, near)):
        left = left_of(other - explained, difference, near)
        if left is not None:
            return guess, left
    return _shifted_without_wrap(one, other, near)


def left_of(residual: Tensor, difference: Tensor, near: Tensor) -> float | None:
    """Returns the share of a difference that a pattern leaves unexplained, as a ratio of root mean
    squares. Returns None if the share is too large for an explanation.

    Args:
        residual: The unexplained difference of each element.
        difference: The whole difference of each element.
        near: How much rounding may change each element.
    """
    before, after = rms(difference), rms(residual)
    if not before or after > max(_LEFT * before, min(rms(near), _MOST_LEFT * before)):
        return None
    off = (residual.abs() > near + _OFF * difference.abs()).double().mean()
    return after / before if off <= _MOST_OFF else None


def rms(values: Tensor) -> float:
    """Returns the root mean square of the values."""
    most = float(values.abs().max()) if values.numel() else 0.0  # squares of very large values would overflow
    return most * float((values / most).square().mean().sqrt()) if most and math.isfinite(most) else most


def _by_value(one: Tensor, other: Tensor, near: Tensor) -> Iterator[tuple[_Guess, Tensor]]:
    """Yields `(guess, predicted)`: a guess of how the tensor `other` follows from `one`, and the
    tensor that it predicts. Each guess derives an element from the element at the same position.
    """
    first = float(other.flatten()[0])
    if one.numel() > 1 and one.any() and bool((other == first).all()):
        yield (
            (_Guess("zero", "are 0") if not first else _Guess("constant", f"are {first:.6g}", {"value": first})),
            other,
        )
    if not one.any():
        yield _Guess("missing", "are 0 in the function as it is"), other
    yield _Guess("sign", "have the other sign"), -one
    if one.numel() >= LEAST:
        scale = float(one.abs().max()) or 1.0
        factor = float((one / scale * other).sum() / (one / scale * one).sum()) if one.any() else 0.0
        if factor:
            yield _Guess("factor", f"are {factor:.6g} times as large", {"factor": factor}), one * factor
        offset = float((other - one).mean())
        than = "larger" if offset > 0 else "smaller"
        yield _Guess("offset", f"are {than} by {abs(offset):.6g}", {"offset": offset}), one + offset
        for dtype in _COARSER:
            name = str(dtype).removeprefix("torch.")
            yield _Guess("type", f"are rounded to {name}", {"dtype": name}), one.to(dtype).double()


def _by_place(one: Tensor, other: Tensor, near: Tensor) -> Iterator[tuple[_Guess, Tensor]]:
    """Yields `(guess, predicted)`: a guess of how the tensor `other` follows from `one`, and the
    tensor that it predicts. Each guess moves elements to other positions.
    """
    if one.numel() < LEAST:
        return
    picked = _Picked(one, other, near)
    for dim, by in _shifts(one, other):
        if picked.agrees(partial(_moved, dim=dim, by=by)):
            yield _shift(one, dim, by, " and wrap around"), one.roll(by, dim) if dim is not None else one.roll(by)
    yield from _transposed(one, picked)
    for dim in range(one.dim()):
        yield from _reordered(one, other, dim)


def _shift(one: Tensor, dim: int | None, by: int, end: str) -> _Guess:
    along = "in the order of memory" if dim is None else f"along dimension {dim}" if one.dim() > 1 else ""
    data = {"by": by, "dimension": dim, "wraps": "and wrap" in end}
    return _Guess("shift", f"are shifted by {by} {along}".rstrip() + end, data)


def _shifts(one: Tensor, other: Tensor) -> Iterator[tuple[int | None, int]]:
    """Yields `(dimension, shift)` for each shift by which the tensor `other` may follow from `one`.
    The dimension is None for a shift in the order of memory.
    """
    for dim in (*range(one.dim()), *([None] if one.dim() > 1 else [])):
        size = one.shape[dim] if dim is not None else one.numel()
        if size > 1:
            few = [by for k in range(1, _TRIED + 1) for by in (k, -k) if k < size]
            yield from ((dim, by) for by in dict.fromkeys([*few, *_peaks(one, other, dim)]))


def _peaks(one: Tensor, other: Tensor, dim: int | None) -> list[int]:
    """Returns the shifts along the dimension `dim` for which the two tensors correlate most. Leaves out a shift of 0.

    If `dim` is None, the tensors are flattened, and shifted as a whole.
    """
    lines = [
        each.movedim(dim, -1).reshape(-1, each.shape[dim]) if dim is not None else each.reshape(1, -1)
        for each in (one, other)
    ]
    size = lines[0].shape[-1]
    step = max(1, math.ceil(lines[0].numel() / max(_LINES, size)))
    first, second = (torch.fft.rfft(each[::step] - each[::step].mean(-1, keepdim=True)) for each in lines)
    correlation = torch.fft.irfft((first.conj() * second).sum(0), n=size)
    at = correlation.topk(min(_TRIED, size)).indices.tolist()
    return [k - size if k > size // 2 else k for k in at if k]


class _Picked:
    """A sample of a tensor's elements. A guess of how two tensors differ is tried on the sample
    before it is tried on all elements.
    """

    def __init__(self, one: Tensor, other: Tensor, near: Tensor) -> None:
        chance = torch.Generator().manual_seed(0)
        self._at = torch.randint(0, one.numel(), (min(_PICKED, one.numel()),), generator=chance)
        self._one, self._shape = one.flatten(), tuple(one.shape)
        self._after = other.flatten()[self._at]
        self._bound = near.flatten()[self._at] + _OFF * (self._after - self._one[self._at]).abs()

    def agrees(self, source: Callable[[Tensor, tuple[int, ...]], Tensor], least: float = 0.9) -> bool:
        """Returns whether a guess holds for enough of the sampled elements.

        Args:
            source: The guess, as a function. Its arguments are positions of elements in the second tensor, and the
                tensor's shape. It returns the positions in the first tensor from which these elements come. -1 means
                that an element comes from no position.
            least: The share of the sampled elements for which the guess must hold.
        """
        at = source(self._at, self._shape)
        known = at >= 0
        if known.sum() * 2 < len(at):
            return False
        close = (self._one[at.clamp(min=0)] - self._after).abs() <= self._bound
        return bool(close[known].double().mean() >= least)


def _moved(at: Tensor, shape: tuple[int, ...], dim: int | None, by: int, *, wraps: bool = True) -> Tensor:
    """Returns, for each shifted element, the position from which it comes. -1 means that it comes from no position."""
    size, stride = (shape[dim], math.prod(shape[dim + 1 :])) if dim is not None else (math.prod(shape), 1)
    index = at // stride % size
    source = at + ((index - by) % size - index) * stride
    return source if wraps else torch.where((index - by >= 0) & (index - by < size), source, -1)


def _transposed(one: Tensor, picked: _Picked) -> Iterator[tuple[_Guess, Tensor]]:
    dims = [dim for dim in range(one.dim()) if one.shape[dim] > 1]
    if not 1 < len(dims) <= _DIMENSIONS:
        return
    sizes = [one.shape[dim] for dim in dims]
    strides = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    for order in list(itertools.permutations(range(len(dims))))[1:]:

        def source(at: Tensor, _: object, order: tuple[int, ...] = order) -> Tensor:
            found = torch.zeros_like(at)
            for which in reversed(order):
                found, at = found + at % sizes[which] * strides[which], at // sizes[which]
            return found

        if picked.agrees(source):
            named = [dims[which] for which in order]
            is_reshaped = [one.shape[dim] for dim in named] != sizes
            how = "reshaped instead of transposed" if is_reshaped else "transposed"
            says = f"are in the order of dimensions {', '.join(map(str, named))}: {how}"
            data = {"dimensions": named, "reshaped": is_reshaped}
            yield _Guess("transposed", says, data), one.squeeze().permute(order).reshape(one.shape)


def _reordered(one: Tensor, other: Tensor, dim: int) -> Iterator[tuple[_Guess, Tensor]]:
    """Yields `(guess, predicted)` if the rows of the tensor `other` may be those of `one` in
    another order. Rows are recognised by their product with a random vector.
    """
    size = one.shape[dim]
    rows, others = (each.movedim(dim, 0).reshape(size, -1) for each in (one, other))
    weights = torch.randn(rows.shape[1], dtype=rows.dtype, generator=torch.Generator().manual_seed(0))
    source = torch.empty(size, dtype=torch.int64)
    source[(others @ weights).argsort()] = (rows @ weights).argsort()
    found = rows[source]
    if size < 2 or (rows.shape[1] < _WIDE and (found == others).double().mean() < 1 - _MOST_OFF):
        return
    explained = found.reshape(one.movedim(dim, 0).shape).movedim(0, dim)
    along = f" along dimension {dim}" if one.dim() > 1 else ""
    if bool((source == torch.arange(size - 1, -1, -1)).all()):
        yield _Guess("order", f"are in reverse order{along}", {"dimension": dim, "reversed": True}), explained
    else:
        moved = (source != torch.arange(size)).nonzero().flatten().tolist()
        few = ", ".join(f"{at} has those of {int(source[at])}" for at in moved[:2])
        says = f"are in another order{along}: index {few}" + (", and so on" if len(moved) > 2 else "")
        yield _Guess("order", says, {"dimension": dim, "reversed": False, "moved": len(moved)}), explained


def _shifted_without_wrap(one: Tensor, other: Tensor, near: Tensor) -> tuple[_Guess, float] | None:
    """Returns `(guess, share)`. The guess is that elements are shifted, and that those shifted out
    at one end do not come back at the other. `share` is the share of the difference that the guess
    does not explain.

    Compares only elements that come from a position within the tensor. Returns None if no shift
    explains how these elements differ.
    """
    if one.numel() < LEAST:
        return None
    picked = _Picked(one, other, near)
    for dim, by in _shifts(one, other):
        if not picked.agrees(partial(_moved, dim=dim, by=by, wraps=False)):
            continue
        tensors = [each if dim is not None else each.flatten() for each in (one, other, near)]
        size = tensors[0].shape[dim or 0]
        kept = size - abs(by)
        source = tensors[0].narrow(dim or 0, max(0, -by), kept)
        target, part, limit = (each.narrow(dim or 0, max(0, by), kept) for each in (tensors[1], *tensors[::2]))
        left = left_of(target - source, target - part, limit)
        if left is not None and target.numel() >= max(LEAST, one.numel() // 2):
            return _shift(one, dim, by, ": others are at the edge"), left
    return None
