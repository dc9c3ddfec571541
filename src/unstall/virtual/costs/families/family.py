"""A family of operators. The shapes of their calls are compared along the same axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from unstall.virtual.costs.signature import ITEM_BYTES, Signature


class Work(NamedTuple):
    """The work of a call.

    Attributes:
        flops: Floating-point operations.
        moved: Bytes of memory moved.
        multiprocessors: The largest number of multiprocessors that can take part: that of the call's thread blocks, if
            it is known.
    """

    flops: float
    moved: float
    multiprocessors: float = math.inf


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis along which shapes are compared.

    If two shapes differ by a factor of 2 on this axis, `weight` is added to their distance. If `is_work`, a call with a
    larger value on this axis has at least as much work for the same kernels.
    """

    name: str
    weight: float = 1.0
    is_work: bool = True


@dataclass(frozen=True, slots=True)
class CallShape:
    """The shape of one call along the axes of its family.

    Attributes:
        variants: Names of tables of measured calls. Similar calls are searched in these tables. The table with the most
            similar calls is first. The first word of a name is the dtype of the computation.
        dims: The call's value on each of the family's axes.
    """

    variants: tuple[str, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """Operators whose calls are described by the same axes."""

    name: str
    axes: tuple[Axis, ...]
    describe: Callable[[Signature], CallShape | None]
    work: Callable[[str, tuple[int, ...]], Work]
    """A function of a call's variant and dims. It returns the work of the call."""
    tensors: Callable[[str, tuple[int, ...]], tuple[float, ...]] | None = None
    """A function of a call's variant and dims.

    It returns the bytes of each tensor that the call may transpose into temporary memory.
    """
    blocks: Callable[[str, tuple[int, ...], str], int] | None = None
    """A function of a call's variant and dims, and of the name of one of its kernels.

    It returns the number of thread blocks of that kernel, or 0 if it is unknown.
    """
    axis_of_blocks: int | None = None
    """The axis on which the number of thread blocks grows in proportion, if a call's efficiency depends mostly on the
    number of thread blocks for each multiprocessor.
    """


def item_bytes(variant: str) -> int:
    """Returns the size in bytes of one element. The dtype of the elements is the first word of the variant."""
    return ITEM_BYTES.get(variant.partition(" ")[0], 4)
