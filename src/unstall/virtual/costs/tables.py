"""Predicts the time of a call from measured calls of similar sizes.

The prediction is the time that the roofline gives, multiplied by a factor. Each measured call has
such a factor: its measured time over the time that the roofline gives. The logarithm of the factor of
the prediction is on the plane that fits those of the nearest measured calls best (local linear
regression: Cleveland, "Robust Locally Weighted Regression and Smoothing Scatterplots", 1979). Their
weights are the inverse cubes of their distances, and a distance is the number of doublings between
the sizes of two calls.
The kernels are those of the nearest measured call, or of the one for which most near calls vote. Calls with these
kernels then tell the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

from unstall.decoding import from_json
from unstall.errors import UsageError
from unstall.replay.program import KEPT, LOST, WHOLE
from unstall.virtual.costs.families import Family
from unstall.virtual.costs.families.family import Measured, Work
from unstall.virtual.costs.gpu_file import as_json
from unstall.virtual.costs.occupancy import MOST
from unstall.virtual.costs.roofline import Roofline

_NEIGHBOURS = 8
_SLOPED = 1.0  # how far beyond the nearest calls their slopes count, in doublings
_RIDGE = 0.1  # how much a slope costs, so that near calls which are all alike in some dimension tell none
_POWER = 3.0
_OTHER_SIDE = 0.2  # what a call weighs less if the L2 cache holds only its bytes, or only those of the call asked for
_OTHER_KERNELS = 2.0
"""How many times as far a call counts if it has other kernels than those chosen: with each of 4,600 convolutions left
out in turn, this brought the mean error of the logarithm from 0.40 to 0.37.
"""
_SAME = 1e-6
_VOTERS = 9
_VOTE_NEAR = 0.05  # the square of a distance within which all votes weigh about the same
_BEST = 0.1  # the quantile of calls that are taken to fill the device
_ROUNDED_BYTES = 512
_ALL_SPILT = 2.0  # how many doublings a loop whose data fits the L2 cache is from one whose data does not
_LONGEST_NS = 3_600 * 10**9
_LARGEST = 1 << 62  # size of a call on an axis
TableRow: TypeAlias = list[Any]
"""A measured call in the file of a GPU, as a list of ints and of lists of ints."""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """A measured call.

    Attributes:
        dims: The call's value on each axis of its family of operators.
        names: The number of each kernel's name.
        ns: How long each kernel took.
        temporaries: The bytes of each temporary allocation.
        blocks: The number of thread blocks of each kernel, 0 for one of which it is unknown; empty if it is for all.
        repeats: How long a call of a loop takes, in ns, with the pauses between kernels; and how long two such loops on
            two streams take together, in thousandths of the time of one. Empty if it was not measured.
    """

    dims: tuple[int, ...]
    names: tuple[int, ...]
    ns: tuple[int, ...]
    temporaries: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    repeats: tuple[int, ...] = ()

    @property
    def total_ns(self) -> int:
        """How long all kernels took together."""
        return sum(self.ns)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The predicted time of a call.

    Attributes:
        total_ns: How long all of its kernels take together.
        nearest: The measured call whose kernels it has. It is the call whose size is nearest, if
            nothing more is known of how kernels are chosen.
        distance: How far apart the sizes of the call and of that whose size is nearest are, in
            doublings.
    """

    total_ns: float
    nearest: MeasuredCall
    distance: float


class CostTable:
    """The measured calls of one variant of a family of operators (see `CallShape`).

    Args:
        family: The family.
        variant: The name of the variant.
        calls: The measured calls.
        measured_on: The roofline of the GPU on which they were measured.
        kernels: The names of kernels, by the numbers that the calls have for them. May be left out
            if the family needs none of them.
    """

    def __init__(
        self,
        family: Family,
        variant: str,
        calls: Sequence[MeasuredCall],
        measured_on: Roofline,
        kernels: Sequence[str] = (),
    ) -> None:
        self._family, self._variant, self._calls, self._measured_on = family, variant, calls, measured_on
        self._kernels = kernels
        self._dtype = variant.partition(" ")[0]
        self._weights = np.array([axis.weight for axis in family.axes])
        self._places = self._place([call.dims for call in calls], measured_on)
        works = [self.work(call.dims, self._dtype) for call in calls]
        total = np.array([max(call.total_ns, 1) for call in calls], float)
        self._factors = np.log(total / [measured_on.ns(work, self._dtype) for work in works])
        choice = family.choice
        if choice is None:
            self._held = np.array([measured_on.holds(work) for work in works])
            uncached = np.log(total / [measured_on.uncached_ns(work, self._dtype) for work in works])
            self._uncached = np.where(self._held, np.maximum(uncached, 0.0), self._factors)
        self._chosen = self._choice_places(np.array([call.dims for call in calls], np.int64)) if choice else None
        self._with_blocks = [at for at, call in enumerate(calls) if call.blocks]
        self._with_repeats = [at for at, call in enumerate(calls) if call.repeats]
        self._spilt = _spilt([works[at].moved for at in self._with_repeats], measured_on)
        told = {call.names: choice.algorithm(variant, self._named(call)) for call in calls} if choice else {}
        self._algorithms = [told.get(call.names) for call in calls]
        numbered = {names: number for number, names in enumerate(told)}
        self._same_kernels = np.array([numbered.get(call.names, -1) for call in calls])
        self._best = float(np.exp(np.quantile(self._factors, _BEST)))

    @property
    def variant(self) -> str:
        """The name of the variant of all calls in the table."""
        return self._variant

    def ask(
        self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None, without: np.ndarray | None = None
    ) -> Estimate:
        """Predicts the time of a call on a GPU.

        Args:
            dims: The call's value on each axis of its family of operators.
            roofline: The roofline of the GPU.
            dtype: The data type of the call; None if it is that of the table.
            without: For each measured call, whether to leave it out. None: all count.
        """
        place = self._place([dims], roofline)
        distances = np.sqrt(((self._places - place) ** 2).sum(1))
        if without is not None:
            distances = np.where(without, np.inf, distances)
        nearest = int(distances.argmin())
        distance = float(distances[nearest])
        if distance < _SAME:
            same = np.flatnonzero(distances < _SAME)
            factor = float(self._factors[same].mean())
        else:
            if self._chosen is not None:
                nearest = self._voted(dims, without)
                distances = np.where(self._same_kernels == self._same_kernels[nearest], 1.0, _OTHER_KERNELS) * distances
            count = min(_NEIGHBOURS, len(distances))
            near = np.argpartition(distances, count - 1)[:count]
            near = near[np.argsort(distances[near], kind="stable")]
            held = self._measured_on.holds(self.work(dims, dtype))
            alike = roofline.multiprocessors == self._measured_on.multiprocessors
            factor = self._between(dims, self._places[near] - place, near, distances[near], held, alike=alike)
        return Estimate(self._ns_on(dims, roofline, dtype, factor), self._calls[nearest], distance)

    def _between(
        self,
        dims: tuple[int, ...],
        places: np.ndarray,
        near: np.ndarray,
        distances: np.ndarray,
        held: bool,
        *,
        alike: bool,
    ) -> float:
        """Returns the logarithm of the time of a call over what the roofline gives, from those of the calls near it.

        What the roofline gives changes where the L2 cache no longer holds a call's bytes. A kernel that moves bytes
        from the cache at less than the rate of the memory moves them as fast from the memory. So calls whose bytes are
        held tell the rate of one whose bytes are not, up to that of the memory. Convolutions are left out: they copy
        their tensors, so it is not known what the cache holds.

        If the time with the kernels of each near call is known (see `Family.rounds`), a call weighs the less, the
        longer its kernels take: a library chooses those that it takes to be fast. For a GPU with another number of
        multiprocessors it chooses others, which are not known.

        Args:
            dims: The call's value on each axis of its family of operators.
            near: The indices of the calls near it.
            distances: How far they are, in doublings.
            held: Whether the L2 cache holds the call's bytes.
            alike: Whether the GPU has as many multiprocessors as the measured one.
        """
        weights, factors = distances**-_POWER, self._factors
        if self._family.choice is None:
            weights = weights * np.where(self._held[near] == held, 1.0, _OTHER_SIDE)
            factors = self._factors if held else self._uncached
        factors = factors[near]
        if not alike:
            return weighted(factors, _on_plane(places, weights))
        longer = [self._longer(self._calls[index], dims) for index in near]
        factors = factors + [each or 0.0 for each in longer]
        if None not in longer:
            weights = weights / np.exp(factors)
        return weighted(factors, _on_plane(places, weights))

    def _longer(self, like: MeasuredCall, dims: tuple[int, ...]) -> float | None:
        """Returns the logarithm of by how much longer a call takes than a measured one with the same kernels, beside
        what the roofline gives, because thread blocks are not divided (see `Family.rounds`). Returns None if this is
        unknown.

        Args:
            like: The measured call.
            dims: The value of the call on each axis of its family of operators.
        """
        if self._family.rounds is None or not self._kernels:
            return None
        found = []
        for each in (dims, like.dims):
            rounds = self._family.rounds(each, self._named(like), self._measured_on.multiprocessors)
            if rounds is None:
                return None
            work = self.work(each, self._dtype)
            usual, whole = (
                self._measured_on.ns(one, self._dtype) for one in (work, work._replace(flops=rounds * work.flops))
            )
            found.append(math.log(whole / usual))
        return found[0] - found[1]

    def _voted(self, dims: tuple[int, ...], without: np.ndarray | None) -> int:
        """Returns the index of the measured call that has the kernels of a predicted call: the nearest
        of those with the algorithm for which most of the calls near it vote, and of these, with the
        kernels for which most vote.

        Args:
            dims: The predicted call's value on each axis of its family of operators.
            without: For each measured call, whether to leave it out. None: all count.
        """
        assert self._chosen is not None
        squares = ((self._chosen - self._choice_places(np.array([dims], np.int64))) ** 2).sum(1)
        if without is not None:
            squares = np.where(without, np.inf, squares)
        voters = np.argsort(squares, kind="stable")[:_VOTERS]
        voters = _winners(voters, squares, lambda voter: self._algorithms[voter])
        return int(_winners(voters, squares, lambda voter: self._calls[voter].names)[0])

    def _choice_places(self, dims: np.ndarray) -> np.ndarray:
        """Returns the places of calls, given their dims, as `Choice` says."""
        assert self._family.choice is not None
        return self._family.choice.places(self._variant, dims, self._measured_on.multiprocessors)

    def _named(self, call: MeasuredCall) -> tuple[str, ...]:
        return tuple(self._kernels[name] for name in call.names)

    def _ns_on(self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None, factor: float) -> float:
        """Returns how long a call takes on a GPU, in ns, from its time on the measured GPU.

        A call may take longer than the memory needs for its bytes, because it has too few threads
        or computes for long. If the memory of the other GPU is slower, compared with its
        multiprocessors, only moving the bytes takes longer, and not the rest of the time. So 1,482
        calls of an H100 that move more than 42 MB are 7 % off (median), predicted from an H200.

        Args:
            dims: The call's value on each axis of its family of operators.
            roofline: The roofline of the GPU.
            dtype: The data type of the call; None if it is that of the table.
            factor: The logarithm of the time of the call on the measured GPU, over the time that
                the roofline gives.
        """
        work, dtype, times = self.work(dims, dtype), dtype or self._dtype, float(np.exp(factor))
        usual = roofline.ns(work, dtype) * times
        memory, before = roofline.memory_ns(work), self._measured_on.memory_ns(work)
        others = self._measured_on.multiprocessors / roofline.multiprocessors
        if memory <= others * before or roofline.computing_ns(work.flops, dtype) > memory:
            return usual
        rest = self._measured_on.ns(work, dtype) * times - self._measured_on.floor_ns - before
        return min(roofline.floor_ns + memory + others * rest, usual) if rest > 0 else usual

    def ideal_ns(self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None) -> float:
        """Returns how long a call would take, in ns, if it used the whole GPU, and were as
        efficient as the best measured calls of its variant. The time of an empty kernel is not in
        it.

        Args:
            dims: The call's value on each axis of its family of operators.
            roofline: The roofline of the GPU.
            dtype: The data type of the call; None if it is that of the table.
        """
        work = self.work(dims, dtype)._replace(multiprocessors=math.inf)
        return (roofline.ns(work, dtype or self._dtype) - roofline.floor_ns) * self._best

    def _place(self, dims: Sequence[tuple[int, ...]], roofline: Roofline) -> np.ndarray:
        """Returns the places of calls on a GPU, an array of shape (calls, axes and `Family.geometry`).

        A multiprocessor with few thread blocks waits more. So if the number of blocks grows with an axis (see
        `Family.axis_of_blocks`), the size on this axis is the one that would give each multiprocessor of the measured
        GPU as many.

        Args:
            dims: For each call, its value on each axis of the family.
            roofline: The roofline of the GPU.
        """
        sizes = np.maximum(np.array(dims, float), 1.0)
        if (axis := self._family.axis_of_blocks) is not None:
            sizes[:, axis] *= self._measured_on.multiprocessors / roofline.multiprocessors
        places: np.ndarray = np.log2(np.maximum(sizes, 1.0)) * self._weights
        if self._family.geometry is None:
            return places
        divided = [self._family.geometry(self._variant, call, roofline.multiprocessors) for call in dims]
        return np.concatenate([places, np.array(divided, float)], 1)

    def work(self, dims: tuple[int, ...], dtype: str | None) -> Work:
        """Returns the work of a call, given its value on each axis of its family, and its data type (see `ask`)."""
        return self._family.work(f"{dtype or self._dtype} {self._variant.partition(' ')[2]}", dims)

    def launched_like(self, dims: tuple[int, ...], nearest: MeasuredCall) -> MeasuredCall:
        """Returns the measured call from which a predicted call has its thread blocks. It has the same kernels, its
        blocks were measured, and its size is nearest. If there is no such call, it is the one that gives the kernels.

        Args:
            dims: The predicted call's value on each axis of its family of operators.
            nearest: The measured call that gives the kernels.
        """
        if nearest.blocks:
            return nearest
        known = [at for at in self._with_blocks if self._calls[at].names == nearest.names]
        if not known:
            return nearest
        squares = ((self._places[known] - self._place([dims], self._measured_on)) ** 2).sum(1)
        return self._calls[known[int(squares.argmin())]]

    def repeated(
        self, dims: tuple[int, ...], roofline: Roofline, dtype: str | None = None
    ) -> list[tuple[MeasuredCall, float]]:
        """Returns the calls nearest to a predicted one that were measured in loops, and their weights, whose sum is 1.
        The list is empty if there are none.

        Args:
            dims: The predicted call's value on each axis of its family of operators.
            roofline: The roofline of its GPU.
            dtype: Its data type; None if it is that of the table.
        """
        known = self._with_repeats
        if not known:
            return []
        places = self._places[known] - self._place([dims], roofline)
        spilt = self._spilt - _spilt([self.work(dims, dtype).moved], roofline)
        places = np.concatenate([places, spilt], 1)
        distances = np.sqrt((places**2).sum(1))
        near = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
        weights = _on_plane(places[near], np.maximum(distances[near], _SAME) ** -_POWER)
        return [(self._calls[known[at]], weight) for at, weight in zip(near, weights.tolist(), strict=True)]

    def temporaries(self, dims: tuple[int, ...], answer: Estimate, multiprocessors: int) -> tuple[int, ...]:
        """Predicts the bytes of each temporary allocation of a call, from those of the nearest
        measured call. If the family cannot tell them, they are scaled by the bytes that the two
        calls move. Small allocations hold counters, and are not scaled.

        Args:
            dims: The call's value on each axis of its family of operators.
            answer: The prediction of its time.
            multiprocessors: The number of multiprocessors of the call's GPU.
        """
        nearest = answer.nearest
        if answer.distance < _SAME or not nearest.temporaries:
            return nearest.temporaries
        if self._family.temporaries is not None:
            measured = Measured(nearest.dims, self._named(nearest), nearest.temporaries)
            both = multiprocessors, self._measured_on.multiprocessors
            found = self._family.temporaries(self._variant, dims, measured, both)
            if found is not None:
                return tuple(round(size) for size in found)
        moved = [self._family.work(self._variant, figures).moved for figures in (dims, nearest.dims)]
        factor = moved[0] / max(moved[1], 1.0)
        return tuple(size if size <= _ROUNDED_BYTES else max(1, round(size * factor)) for size in nearest.temporaries)


def _on_plane(places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the factors by which values at some places add up to the value at the origin of the plane that fits them
    best. Their sum is 1. From one doubling beyond the places on, the plane is level: no slope is known there.

    Args:
        places: The places, an array of shape (values, axes).
        weights: The weights of the values.
    """
    weights = weights / weights.sum()
    places = places - np.clip(0.0, places.min(0) - _SLOPED, places.max(0) + _SLOPED)
    place = weights @ places
    far = (places - place) * weights[:, None]
    spread = far.T @ (places - place)
    cost = _RIDGE * max(float(np.trace(spread)) / len(spread), _SAME)
    factors: np.ndarray = weights - far @ np.linalg.solve(spread + cost * np.eye(len(spread)), place)
    return factors


def weighted(values: np.ndarray, factors: np.ndarray) -> float:
    """Returns the sum of values times factors, but nothing beyond the values. With each of 15,000 measured calls left
    out in turn, this was nearer to its time than without limits.
    """
    return float(np.clip(values @ factors, values.min(), values.max()))


def _spilt(moved: Sequence[float], roofline: Roofline) -> np.ndarray:
    """Returns how much of their data loops lose from the L2 cache before they use it again, and how much two loops at
    the same time lose, as places on two axes: `_ALL_SPILT` if it is all.

    Args:
        moved: The bytes that a call of each loop moves.
        roofline: The roofline of the GPU.
    """
    used = np.outer(moved, [1.0, 2.0]) * WHOLE / roofline.l2_bytes
    places: np.ndarray = _ALL_SPILT * np.clip((used - KEPT) / (LOST - KEPT), 0.0, 1.0)
    return places


def _winners(voters: np.ndarray, squares: np.ndarray, choice: Callable[[int], Hashable]) -> np.ndarray:
    """Returns those of the voters whose choice most of them vote for. A voter weighs the less, the larger its
    entry of `squares`, the square of its distance, is.
    """
    votes: dict[Hashable, float] = {}
    for voter in voters:
        votes[choice(voter)] = votes.get(choice(voter), 0.0) + 1 / (squares[voter] + _VOTE_NEAR)
    winner = max(votes, key=lambda chosen: votes[chosen])
    return voters[[choice(voter) == winner for voter in voters]]


def as_rows(calls: Sequence[MeasuredCall], sequences: dict[tuple[int, ...], int]) -> Raw:
    """Returns measured calls as a table of the file of a GPU: JSON, with a row for each call. A row
    has the values on the axes of the family, the number of the sequence of kernels, the ns of the
    kernels, the bytes of the temporary allocations, the thread blocks of the kernels, and what the call takes in
    loops. The last three are left out if there is nothing more to tell. If there is only one kernel or one
    allocation, the row has its figure in place of a list.

    Args:
        calls: The calls.
        sequences: By a sequence of kernels, its number. New sequences are added.
    """
    rows = []
    for call in calls:
        row: TableRow = [*call.dims, sequences.setdefault(call.names, len(sequences)), _bare(call.ns)]
        more = [call.temporaries, call.blocks, call.repeats]
        while more and not more[-1]:
            more.pop()
        rows.append([*row, *map(_bare, more)])
    return as_json(rows)


def of_rows(table: Raw, axes: int, sequences: Sequence[Sequence[int]]) -> list[MeasuredCall]:
    """Returns the measured calls that a table of the file of a GPU stands for. Raises UsageError if
    it is not valid.

    Args:
        table: The table, as `as_rows` returned it.
        axes: The number of axes of the family of operators.
        sequences: The sequences of kernels, by number.
    """
    try:
        return [_call(row, axes, sequences) for row in from_json(table, list[TableRow])]
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"not a GPU's description: {error}") from None


def _call(row: TableRow, axes: int, sequences: Sequence[Sequence[int]]) -> MeasuredCall:
    if not axes + 2 <= len(row) <= axes + 5 or not all(type(figure) is int for figure in row[: axes + 1]):
        raise ValueError(f"{row}: not {axes} figures, a sequence of kernels, ns, temporaries, blocks and repeats")
    if not all(1 <= figure <= _LARGEST for figure in row[:axes]):
        raise ValueError(f"{row}: sizes that are not from 1 to 2^62")
    if not 0 <= row[axes] < len(sequences):
        raise ValueError(f"{row}: there is no sequence {row[axes]}")
    names, ns = tuple(sequences[row[axes]]), _several(row[axes + 1])
    if not all(type(each) is int and 0 <= each <= _LONGEST_NS for each in ns):
        raise ValueError(f"{row}: no times of kernels")
    if len(names) != len(ns):
        raise ValueError(f"{row}: {len(names)} kernels with {len(ns)} durations")
    temporaries, blocks, repeats = (_several(row[at]) if len(row) > at else () for at in range(axes + 2, axes + 5))
    if not all(type(count) is int and 0 <= count <= MOST for count in blocks):
        raise ValueError(f"{row}: no numbers of thread blocks")
    if blocks and len(blocks) != len(names):
        raise ValueError(f"{row}: {len(names)} kernels with the blocks of {len(blocks)}")
    if not all(type(figure) is int and 0 < figure <= MOST for figure in repeats) or len(repeats) not in (0, 2):
        raise ValueError(f"{row}: not the ns of a call of a loop, and the time of two loops")
    return MeasuredCall(tuple(row[:axes]), names, ns, temporaries, blocks, repeats)


def _bare(values: tuple[int, ...]) -> int | list[int]:
    return values[0] if len(values) == 1 else list(values)


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
