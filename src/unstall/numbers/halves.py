"""Finds where half of a batch gives other numbers than the whole batch.

The cause may be that another kernel runs for the half, or that the function mixes the samples of a
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unstall.numbers.kernels import kernels_of
from unstall.numbers.reasons import named
from unstall.numbers.run import run
from unstall.numbers.ways import Function, as_given, first_half
from unstall.rounding.facts import is_drawn, real_parts
from unstall.rounding.judge import RUNS, Compared, Judge, Pair
from unstall.rounding.noise import Noise
from unstall.rounding.operators import Place
from unstall.rounding.samples import Kept, Ran, Seen, positions

_SAMPLES = 1024  # elements that are kept of an operator's result


@dataclass(frozen=True, slots=True)
class Halves:
    """The comparison of two runs of a function: one on half of a batch, and the same rows of one on
    the whole batch.

    Attributes:
        found: The comparison. It omits gradients and arguments, which depend on the whole batch.
        bits: The first operator whose result has different bits in the two runs, if rounding
            explains all differences between the runs. None if there is no such operator. Also None
            if the bits of this operator's result vary between two runs of the whole batch.
        kernels: (whole, half): the names of the operator's kernels for the whole batch, and for
            half of the batch. Both tuples are empty if the kernels are not known.
    """

    found: Compared
    bits: Pair | None
    kernels: tuple[tuple[str, ...], tuple[str, ...]]

    def verdict(self) -> tuple[str, str] | None:
        """Returns `(kind, sentence)`: the kind of the difference between the two runs, as in
        `answer.Row`, and a sentence about it. Returns None if the kind is unclear.
        """
        if self.found.first is not None:
            seen = self.found.first.seen
            return "different", (
                f"The result of one sample depends on the other samples: {named(seen)} is the first that differs "
                "by more than rounding if only the first half of the batch is given."
            )
        if self.bits is None:
            results = [pair for pair in self.found.pairs if pair.seen.kind == "result"]
            if any(pair.difference for pair in results):
                return None
            return "rounding", (
                "Results have the same bits in half batches. Gradients add up the batch, here in two parts: "
                "what differs is rounding."
            )
        whole, half = (", ".join(names) for names in self.kernels)
        how = "has another kernel, or other blocks, for this size"
        if whole and half:
            how = f"picks another kernel for this size: {half} instead of {whole}"
            if whole == half:
                how = f"adds up in another order for this size, by the same kernel: {whole}"
        return "batch", f"Other bits in half batches, within rounding: {named(self.bits.seen)} {how}."


def compare_halves(fn: Function, inputs: Sequence[object]) -> Halves | None:
    """Runs a function on the first half of a batch alone, and compares this run with the same rows
    of a run of the whole batch.

    Returns None if the function draws random numbers, or if a result has no batch dimension.
    """
    half_way = first_half(fn, inputs)
    assert half_way.part is not None
    half = _only_results(run(half_way, new=_More))
    if any(is_drawn(each.name) for each in half.operators):
        return None
    rows = _Rows(half, *half_way.part)
    before = _only_results(run(as_given(fn, inputs), new=lambda: _FirstHalf(rows)))
    if not rows.results_have_batch:
        return None
    exact = Judge(before, []).compare(half)
    if exact.first is None:  # results have the same bits
        return Halves(exact, None, ((), ()))
    noisy = [
        _only_results(run(as_given(fn, inputs), Noise(seed), new=lambda: _FirstHalf(rows))) for seed in range(RUNS)
    ]
    found = Judge(before, noisy).compare(half)
    bits = None if found.first is not None else _first_bits(found)
    if bits is None or _varies(bits, before, _only_results(run(as_given(fn, inputs), new=lambda: _FirstHalf(rows)))):
        return Halves(found, None, ((), ()))
    whole_at = next(at for at, each in enumerate(before.operators) if each is bits.before)
    half_at = next(at for at, each in enumerate(half.operators) if each is bits.after)
    kernels = kernels_of(as_given(fn, inputs), whole_at), kernels_of(half_way, half_at)
    return Halves(found, bits, kernels)


def _first_bits(found: Compared) -> Pair | None:
    inside = (pair for pair in found.pairs if pair.seen.kind == "operator" and pair.seen.terms > 1)
    return next((pair for pair in inside if 0 < pair.share <= found.limit), None)


def _varies(pair: Pair, before: Ran, again: Ran) -> bool:
    at = next(at for at, each in enumerate(before.operators) if each is pair.before)
    return len(again.operators) != len(before.operators) or bool(
        (again.operators[at].values != before.operators[at].values).any()
    )


def _only_results(ran: Ran) -> Ran:
    return Ran({}, ran.operators, {key: each for key, each in ran.ends.items() if key[0] == "result"})


class _Rows:
    """Finds the first half of the batch in tensors that contain the whole batch.

    `half` is the run of the first half alone.
    """

    def __init__(self, half: Ran, middle: int, batch: int) -> None:
        self._half, self._middle, self._batch = half, middle, batch
        self._inner: dict[tuple[str, str | int], bool] = {}  # whether the batch is the inner part of the dimension
        self.results_have_batch = True

    def of(self, kind: str, name: str, number: int, tensor: Tensor) -> Tensor:
        """Returns the first half of the batch in `tensor`. Returns the whole tensor if it has no
        batch dimension. `kind`, `name` and `number` identify the tensor in the run.
        """
        seen: Seen | None = None
        if kind == "operator":
            seen = self._half.operators[number] if number < len(self._half.operators) else None
        elif kind == "result":
            seen = self._half.ends.get((kind, name))
        shape = tuple(real_parts(tensor.detach()).shape)
        dim = self._dimension(shape, seen.shape) if seen is not None and seen.name == name else None
        if seen is None or dim is None:
            self.results_have_batch &= kind != "result"
            return tensor
        outer = tensor.narrow(dim, 0, seen.shape[dim])
        if shape[dim] % self._batch or shape[dim] == self._batch:
            return outer
        inner = tensor.unflatten(dim, (-1, self._batch)).narrow(dim + 1, 0, self._middle).flatten(dim, dim + 1)
        key = (kind, number if kind == "operator" else name)
        if key not in self._inner:
            self._inner[key] = _distance(inner, seen) < _distance(outer, seen)
        return inner if self._inner[key] else outer

    def _dimension(self, whole: tuple[int, ...], half: tuple[int, ...]) -> int | None:
        """Returns the dimension of the batch, if the shapes `whole` and `half` differ only in this
        dimension. Returns None if they differ in another way.
        """
        if len(whole) != len(half):
            return None
        others = [dim for dim, (one, other) in enumerate(zip(whole, half, strict=True)) if one != other]
        is_batch = len(others) == 1 and whole[others[0]] * self._middle == half[others[0]] * self._batch
        return others[0] if is_batch else None


def _distance(tensor: Tensor, seen: Seen) -> float:
    real = real_parts(tensor.detach())
    most = max(_SAMPLES, len(seen.values))
    values = real.take(positions(real.numel(), real.device, most)).double().cpu()
    return float((values - torch.from_numpy(seen.values)).nan_to_num().abs().sum())


class _More(Kept):
    """Keeps 1,024 elements of each operator's result, more than `Kept` does."""

    def keep_all(
        self, kind: str, name: str, place: Place, tensors: Sequence[Tensor], most: int, terms: int = 0
    ) -> None:
        super().keep_all(kind, name, place, tensors, max(most, _SAMPLES), terms)


class _FirstHalf(_More):
    """Keeps only elements of the first half of the batch."""

    def __init__(self, rows: _Rows) -> None:
        super().__init__()
        self._rows = rows

    def keep_all(
        self, kind: str, name: str, place: Place, tensors: Sequence[Tensor], most: int, terms: int = 0
    ) -> None:
        halves = [self._rows.of(kind, name, number, each) for number, each in enumerate(tensors, len(self))]
        super().keep_all(kind, name, place, halves, most, terms)
