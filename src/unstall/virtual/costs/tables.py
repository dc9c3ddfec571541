"""Looks up measured calls by shape.

The estimated time of a call is its roofline time multiplied by a factor. Each measured call has such a factor: its
measured time divided by its roofline time. The factor of the estimate is a weighted geometric mean of the factors of
the nearest measured calls. The weight of a measured call is the inverse cube of its distance. The distance is the
number of doublings between the dims of the two calls. The kernels of the estimate are the kernels of the nearest
measured call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unstall.virtual.costs.families import Family
from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.gpu_file import TableRow
from unstall.virtual.costs.roofline import Roofline

_NEIGHBOURS = 4
_POWER = 3.0
_SAME = 1e-6
_BEST = 0.1  # the quantile of calls that are taken to fill the device
_FULL_RATE = 1.1  # of the roofline's time, what a call takes that waits for the memory alone
_NOISE = 1.25  # by which the times of short kernels vary from measurement to measurement
_ROUNDED_BYTES = 512
_PADDED_BYTES = 16 << 10
"""The largest number of bytes in one allocation that are padding or counters and do not belong to a tensor."""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """One measured call.

    Attributes:
        dims: The call's value for each axis of its operator family.
        names: The index of each kernel's name.
        ns: The duration of each kernel.
        temporaries: The bytes of each temporary allocation.
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
    """The estimate for one shape.

    Attributes:
        total_ns: The total duration of the kernels.
        nearest: The measured call with the nearest shape.
        distance: The distance to the shape of `nearest`, in doublings.
    """

    total_ns: float
    nearest: MeasuredCall
    distance: float


class CostTable:
    """The measured calls of one variant of a family (see `CallShape`). `measured_on` is the roofline of the measured
    GPU.
    """

    def __init__(self, family: Family, variant: str, calls: Sequence[MeasuredCall], measured_on: Roofline) -> None:
        self._family, self._variant, self._calls, self._measured_on = family, variant, calls, measured_on
        self._dtype = variant.partition(" ")[0]
        self._weights = np.array([axis.weight for axis in family.axes])
        self._places = self._place(np.array([call.dims for call in calls], float))
        floors = np.array([self._roofline(call.dims, measured_on) for call in calls])
        self._factors = np.log(_fastest(family, calls) / floors)
        self._best = float(np.exp(np.quantile(self._factors, _BEST)))

    @property
    def variant(self) -> str:
        """The variant of the measured calls in the table."""
        return self._variant

    def ask(
        self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None, without: np.ndarray | None = None
    ) -> Estimate:
        """Returns the estimated time of a call on a GPU.

        Args:
            dims: The call's value for each axis of its operator family.
            roofline: The roofline of the GPU.
            dtype: The call's dtype if it differs from the table's dtype, otherwise None.
            without: One bool for each measured call. The estimate ignores a measured call if its bool is True.
        """
        as_full = np.array([self._as_full(dims, roofline)], float)
        distances = np.sqrt(((self._places - self._place(as_full)) ** 2).sum(1))
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
        factor -= self._hidden(dims, roofline, dtype, factor)
        total = self._roofline(dims, roofline, dtype) * float(np.exp(factor))
        return Estimate(total, self._calls[nearest], float(distances[nearest]))

    def _as_full(self, dims: tuple[int, ...], roofline: Roofline) -> tuple[float, ...]:
        """Returns the dims of the call that gives each multiprocessor of the measured GPU as many thread blocks as this
        call gives those of the estimated GPU. A multiprocessor with few blocks waits more.
        """
        if self._family.axis_of_blocks is None:
            return dims
        scaled = [float(dim) for dim in dims]
        scaled[self._family.axis_of_blocks] *= self._measured_on.multiprocessors / roofline.multiprocessors
        return tuple(scaled)

    def _hidden(self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None, factor: float) -> float:
        """Returns the amount to subtract from a call's factor if the estimate is for a GPU that was not measured. The
        factor is the logarithm of the ratio between the call's time and its roofline time.

        A call may take longer than its memory traffic, because it has too few threads or computes too long. On the
        estimated GPU, the memory may be slower, relative to the multiprocessors, than on the measured GPU. If so, the
        memory traffic takes a larger part of the call's time, and overlaps a part of the extra time.
        """
        work, dtype = self._work(dims, dtype), dtype or self._dtype
        memory = roofline.memory_ns(work) / max(self._measured_on.memory_ns(work), 1e-9)
        others = self._measured_on.multiprocessors / roofline.multiprocessors
        if memory <= others or roofline.computing_ns(work.flops, dtype) > roofline.memory_ns(work):
            return 0.0
        share = 1 - roofline.floor_ns / roofline.ns(work, dtype)
        return float(
            np.clip(share * np.log(memory / others), 0.0, max(factor - np.log(min(self._best, _FULL_RATE)), 0.0))
        )

    def ideal_ns(self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None) -> float:
        """Returns the ns that a call would take if it used the whole GPU, and were as efficient as the best measured
        calls of its variant.
        """
        work = self._work(dims, dtype)._replace(multiprocessors=math.inf)
        return (roofline.ns(work, dtype or self._dtype) - roofline.floor_ns) * self._best

    def _place(self, dims: np.ndarray) -> np.ndarray:
        places: np.ndarray = np.log2(np.maximum(dims, 1.0)) * self._weights
        return places

    def _roofline(self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None) -> float:
        return roofline.ns(self._work(dims, dtype), dtype or self._dtype)

    def _work(self, dims: tuple[int, ...], dtype: str | None) -> Work:
        return self._family.work(f"{dtype or self._dtype} {self._variant.partition(' ')[2]}", dims)

    def temporaries(self, dims: tuple[int, ...], answer: Estimate) -> tuple[int, ...]:
        """Returns the bytes of each temporary allocation of a call. Scales the allocations of the nearest measured call
        by the ratio of the bytes that the two calls move. Does not scale small allocations, because they hold counters.

        If the family's kernels may transpose tensors, assumes that an allocation holds some of these tensors as a
        whole. From all sets of tensors that fit into the allocation, assumes the set with the most bytes. The remaining
        bytes of the allocation hold sums over parts of the batch. These bytes scale only with the size of the weight.
        """
        if answer.distance < _SAME:
            return answer.nearest.temporaries
        moved = [self._family.work(self._variant, figures).moved for figures in (dims, answer.nearest.dims)]
        factor = moved[0] / max(moved[1], 1.0)
        parts = self._family.tensors
        turned = [parts(self._variant, figures) for figures in (dims, answer.nearest.dims)] if parts else None
        return tuple(
            size if size <= _ROUNDED_BYTES else max(1, round(_scaled(size, factor, turned)))
            for size in answer.nearest.temporaries
        )


def _scaled(size: int, factor: float, turned: list[tuple[float, ...]] | None) -> float:
    """Scales one temporary allocation of the nearest call.

    `turned` has two tuples, each with the bytes of each tensor that may be transposed. The first tuple is for the call
    to estimate. The second tuple is for the nearest call. `turned` is None if the family transposes no tensors.
    """
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


def _fastest(family: Family, calls: Sequence[MeasuredCall]) -> np.ndarray:
    """Returns the time of each call in ns. If another call with the same kernels and at least as much work was much
    faster, returns the time of the other call instead.

    The slower call took long for another reason than its size. For example, the time of a softmax depends on the values
    in its input, because a float32 division of denormal values is slow.
    """
    times = np.array([max(call.total_ns, 1) for call in calls], float)
    dims = np.array([call.dims for call in calls])
    other = [at for at, axis in enumerate(family.axes) if not axis.is_work]
    alike: dict[tuple[int, ...], list[int]] = {}
    for row, call in enumerate(calls):
        alike.setdefault((*call.names, -1, *(call.dims[at] for at in other)), []).append(row)
    fastest = times.copy()
    for rows in alike.values():
        larger = (dims[rows][:, None] <= dims[rows]).all(2)
        fastest[rows] = np.where(larger, times[rows], np.inf).min(1)
    return np.where(times > _NOISE * fastest, fastest, times)


def as_rows(calls: Sequence[MeasuredCall], sequences: dict[tuple[int, ...], int]) -> list[TableRow]:
    """Returns the rows of a GPU file. A row has the dims, the index of the kernel sequence, the ns, and the temporaries
    if there are any. A list of ns or temporaries with one value becomes a number. Adds new sequences to `sequences`.
    """
    rows = []
    for call in calls:
        row: TableRow = [*call.dims, sequences.setdefault(call.names, len(sequences)), _bare(call.ns)]
        if call.temporaries:
            row.append(_bare(call.temporaries))
        rows.append(row)
    return rows


def of_rows(rows: Sequence[TableRow], axes: int, sequences: Sequence[Sequence[int]]) -> list[MeasuredCall]:
    """Parses rows of a GPU file. This is the inverse of `as_rows`. Raises ValueError if a row is malformed."""
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
