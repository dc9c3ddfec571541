"""Measured calls, looked up by shape.

The time of a call is its roofline times a factor: a mean over the nearest measured shapes, weighted by their distance
in doublings. Its kernels are those of the nearest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unstall.virtual.costs.families import Family
from unstall.virtual.costs.gpu_file import TableRow
from unstall.virtual.costs.roofline import Roofline

_NEIGHBOURS = 4
_POWER = 3.0
_SAME = 1e-6
_ROUNDED_BYTES = 512
_PADDED_BYTES = 16 << 10
"""Between tensors in one allocation, and counters after them."""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """One measured call: its figures, its kernels as numbers of names with their ns, the bytes of each temporary
    allocation.
    """

    dims: tuple[int, ...]
    names: tuple[int, ...]
    ns: tuple[int, ...]
    temporaries: tuple[int, ...] = ()

    @property
    def total_ns(self) -> int:
        return sum(self.ns)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate for one shape: its kernels' time together, and the nearest measured call with its distance in
    doublings.
    """

    total_ns: float
    nearest: MeasuredCall
    distance: float


class CostTable:
    """The measured calls of one variant of a family. `measured_on` is the roofline of the GPU that they were measured
    on.
    """

    def __init__(self, family: Family, variant: str, calls: Sequence[MeasuredCall], measured_on: Roofline) -> None:
        self._family, self._variant, self._calls = family, variant, calls
        self._weights = np.array([axis.weight for axis in family.axes])
        self._places = self._place(np.array([call.dims for call in calls], float))
        floors = np.array([self._roofline(call.dims, measured_on) for call in calls])
        self._factors = np.log(np.array([max(call.total_ns, 1) for call in calls]) / floors)

    @property
    def variant(self) -> str:
        """The variant of the family that was measured."""
        return self._variant

    def ask(
        self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None, without: np.ndarray | None = None
    ) -> Estimate:
        """The estimate for a call of these figures on the GPU of `roofline`. `dtype`: the call's, if it is not the
        table's.

        Calls with true `without` count as not measured.
        """
        distances = np.sqrt(((self._places - self._place(np.array([dims], float))) ** 2).sum(1))
        if without is not None:
            distances = np.where(without, np.inf, distances)
        count = min(_NEIGHBOURS, len(distances))
        near = np.argpartition(distances, count - 1)[:count]
        near = near[np.argsort(distances[near], kind="stable")]
        nearest = int(near[0])
        if distances[nearest] < _SAME:
            same = np.flatnonzero(distances < _SAME)
            factor = float(self._factors[same].mean())
        else:
            weights = distances[near] ** -_POWER
            factor = float((weights * self._factors[near]).sum() / weights.sum())
        total = self._roofline(dims, roofline, dtype) * float(np.exp(factor))
        return Estimate(total, self._calls[nearest], float(distances[nearest]))

    def _place(self, dims: np.ndarray) -> np.ndarray:
        places: np.ndarray = np.log2(np.maximum(dims, 1.0)) * self._weights
        return places

    def _roofline(self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None) -> float:
        own, _, rest = self._variant.partition(" ")
        dtype = dtype or own
        return roofline.ns(*self._family.work(f"{dtype} {rest}", dims), dtype)

    def temporaries(self, dims: tuple[int, ...], answer: Estimate) -> tuple[int, ...]:
        """The nearest call's allocations, scaled by what the calls move; small ones are counters, and stay as they
        are. Where the family turns tensors, an allocation holds those that fit in it, and what is left of it grows
        with the weight alone: sums over parts of the batch.
        """
        if answer.distance < _SAME:
            return answer.nearest.temporaries
        moved = [self._family.work(self._variant, figures)[1] for figures in (dims, answer.nearest.dims)]
        factor = moved[0] / max(moved[1], 1.0)
        parts = self._family.tensors
        turned = [parts(self._variant, figures) for figures in (dims, answer.nearest.dims)] if parts else None
        return tuple(
            size if size <= _ROUNDED_BYTES else max(1, round(_scaled(size, factor, turned)))
            for size in answer.nearest.temporaries
        )


def _scaled(size: int, factor: float, turned: list[tuple[float, ...]] | None) -> float:
    """Of a temporary allocation of the nearest call. `turned` are the bytes of the tensors, of this call and of it."""
    if turned is None:
        return size * factor
    these, those = turned
    whole, held = max(
        (sum(those[at] for at in chosen), sum(these[at] for at in chosen))
        for count in range(len(those) + 1)
        for chosen in combinations(range(len(those)), count)
        if sum(those[at] for at in chosen) <= size
    )
    if not whole:
        return size * factor
    rest = size - whole
    return held + (rest if rest <= _PADDED_BYTES else rest * these[-1] / max(those[-1], 1.0))


def as_rows(calls: Sequence[MeasuredCall], sequences: dict[tuple[int, ...], int]) -> list[TableRow]:
    """The rows of a GPU's file: the figures, the index of the sequence of kernels, ns and temporaries, as lists if they
    are several.

    New sequences get the next indices.
    """
    rows = []
    for call in calls:
        row: TableRow = [*call.dims, sequences.setdefault(call.names, len(sequences)), _bare(call.ns)]
        if call.temporaries:
            row.append(_bare(call.temporaries))
        rows.append(row)
    return rows


def of_rows(rows: Sequence[TableRow], axes: int, sequences: Sequence[Sequence[int]]) -> list[MeasuredCall]:
    """The opposite of `as_rows`. Raises ValueError for a row that is not of that form."""
    calls = []
    for row in rows:
        if not axes + 2 <= len(row) <= axes + 3 or not all(type(figure) is int for figure in row[: axes + 1]):
            raise ValueError(f"{row}: not {axes} figures, a sequence of kernels, ns and temporaries")
        if not 0 <= row[axes] < len(sequences):
            raise ValueError(f"{row}: there is no sequence {row[axes]}")
        names, ns = tuple(sequences[row[axes]]), _several(row[axes + 1])
        if len(names) != len(ns):
            raise ValueError(f"{row}: {len(names)} kernels with {len(ns)} durations")
        temporaries = _several(row[axes + 2]) if len(row) > axes + 2 else ()
        calls.append(MeasuredCall(tuple(row[:axes]), names, ns, temporaries))
    return calls


def _bare(values: tuple[int, ...]) -> int | list[int]:
    return values[0] if len(values) == 1 else list(values)


def _several(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)
