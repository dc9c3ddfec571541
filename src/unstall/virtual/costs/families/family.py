"""What a family of operators is. All calls of its operators are described by the same axes, so
their sizes can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unstall.virtual.costs.model import Kernel
from unstall.virtual.costs.signature import ITEM_BYTES, Signature

HALVES = {"float16": "bfloat16", "bfloat16": "float16"}
"""By data type of 16 bits, the other. Kernels for them take as long."""


SECTOR = 32
"""The fewest bytes that a GPU's memory reads or writes."""


class Work(NamedTuple):
    """The work of a call.

    Attributes:
        flops: The number of floating-point operations.
        moved: How many bytes of memory are read and written.
        multiprocessors: How many multiprocessors can take part at most. This is the number of the
            call's thread blocks if it is known, and else infinite.
        scattered: How many bytes more are read and written if the L2 cache does not hold the table in which a call
            finds its elements: memory moves whole sectors (see `SECTOR`).
        table: The bytes of this table.
    """

    flops: float
    moved: float
    multiprocessors: float = math.inf
    scattered: float = 0.0
    table: float = 0.0


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis along which the sizes of calls are compared.

    Attributes:
        name: The name of the axis.
        weight: How far apart two calls are that differ by a factor of 2 on this axis.
    """

    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class CallShape:
    """What a call looks like to its family of operators.

    Attributes:
        variants: The names of the tables of measured calls that may have similar calls, the most
            similar first. Such a name, a variant, says what is not a size: the data type (its first
            word), the operator, layouts. Calls of one variant differ only in `dims`.
        dims: The call's value on each axis of the family.
    """

    variants: tuple[str, ...]
    dims: tuple[int, ...]


class Measured(NamedTuple):
    """What temporary memory is predicted from.

    Attributes:
        dims: The value of the measured call on each axis of the family.
        kernels: The name of each of its kernels, in order.
        sizes: The bytes of each of its temporary allocations, in order.
    """

    dims: tuple[int, ...]
    kernels: tuple[str, ...]
    sizes: tuple[int, ...]


class Found(NamedTuple):
    """What the measured call that is most like a call launches and allocates.

    Attributes:
        variant: Its variant.
        is_measured: Whether it has the sizes of the call.
        kernels: Its kernels, with the times that are predicted for the call.
        temporaries: The bytes of each temporary allocation, as predicted for the call.
    """

    variant: str
    is_measured: bool
    kernels: tuple[Kernel, ...]
    temporaries: tuple[int, ...]


class Target(NamedTuple):
    """The GPU of a predicted call.

    Attributes:
        multiprocessors: The number of its multiprocessors.
        threads: The number of threads that fit on a multiprocessor.
        zeroing: A function that returns the memset of a number of bytes.
    """

    multiprocessors: int
    threads: int
    zeroing: Callable[[int], Kernel]


class Choice(NamedTuple):
    """How a library chooses kernels, as far as it is known.

    Attributes:
        places: A function of the variant of calls, of their dims as an array of [calls, axes], and of
            the number of multiprocessors. It returns an array of [calls, coordinates]. Of calls
            whose places are near each other, most have the same algorithm.
        algorithm: A function of a call's variant and of the names of its kernels that returns what
            tells its algorithm.
    """

    places: Callable[[str, np.ndarray, int], np.ndarray]
    algorithm: Callable[[str, Sequence[str]], Hashable]


@dataclass(frozen=True)
class Family:
    """A family of operators: all of their calls are described by the same axes.

    Attributes:
        name: The name of the family.
        axes: The axes.
        describe: A function of a call that returns its shape, or None if the family cannot describe
            it.
        work: A function of a call's variant and dims that returns its work.
        temporaries: A function of a call's variant and dims, of a measured call that is like it, and
            of the numbers of multiprocessors of the call's GPU and of the measured one. It returns
            the bytes of each temporary allocation of the call, or None if it cannot tell. None if
            it cannot tell for any call.
        blocks: A function of a call's variant and dims, and of the name of one of its kernels. It
            returns the number of thread blocks of that kernel, or 0 if it is unknown. None if it is
            unknown for all calls.
        choice: How a library chooses the kernels of a call. None: they are those of the measured
            call whose size is nearest.
        adapt: A function of a call, its shape, what was found for it, and its GPU. It returns what was
            found, changed by how the call differs from the measured one. None: nothing is changed.
        least_ns: A function of a call's shape and the number of multiprocessors of its GPU that
            returns how long the call takes at least. None: it is not known.
        frees_each: Whether a call frees each temporary allocation before the next.
        axis_of_blocks: The index of the axis with which the number of thread blocks grows in
            proportion, if the efficiency of a call depends mostly on how many thread blocks a
            multiprocessor gets; else None.
        rounds: A function of a call's dims, of the names of the kernels that compute it, and of the
            number of multiprocessors. It returns by which factor the arithmetic takes longer as each
            multiprocessor computes whole thread blocks, one after the other. It returns None if the
            kernels are not such, or if the call is computed in a way that the names do not tell.
            None: no kernels are such.
        geometry: A function of a call's variant and dims, and of the number of multiprocessors. It
            returns further coordinates of the call beside its axes, in doublings: how its kernels
            divide the work among threads. Calls of one variant have as many each. None: it is not
            known, or follows the axes evenly.
    """

    name: str
    axes: tuple[Axis, ...]
    describe: Callable[[Signature], CallShape | None]
    work: Callable[[str, tuple[int, ...]], Work]
    temporaries: Callable[[str, tuple[int, ...], Measured, tuple[int, int]], tuple[float, ...] | None] | None = None
    blocks: Callable[[str, tuple[int, ...], str], int] | None = None
    choice: Choice | None = None
    adapt: Callable[[Signature, CallShape, Found, Target], Found] | None = None
    least_ns: Callable[[CallShape, int], float] | None = None
    frees_each: bool = False
    axis_of_blocks: int | None = None
    rounds: Callable[[tuple[int, ...], Sequence[str], int], float | None] | None = None
    geometry: Callable[[str, tuple[int, ...], int], tuple[float, ...]] | None = None


def alike(dtype: str) -> tuple[str, ...]:
    """Returns the data types whose measured calls can stand for those of `dtype`, the most similar first."""
    return tuple(dict.fromkeys((dtype, HALVES.get(dtype, dtype), "float32")))


def item_bytes(variant: str) -> int:
    """Returns the size in bytes of an element. The first word of `variant` is the data type."""
    return ITEM_BYTES.get(variant.partition(" ")[0], 4)


def read_apart(count: int, item: int, of: int) -> int:
    """Returns how many elements of a tensor the memory moves for `count` of them that lie apart: a whole sector for
    each, but no more than there are.

    Args:
        count: How many elements are read.
        item: The size in bytes of an element.
        of: How many elements the tensor has.
    """
    return min(of, count * SECTOR // item)
