"""What a family of operators is. All calls of its operators are described by the same axes, so
their sizes can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from unstall.virtual.costs.signature import ITEM_BYTES, Signature


class Work(NamedTuple):
    """The work of a call.

    Attributes:
        flops: The number of floating-point operations.
        moved: How many bytes of memory are read and written.
        multiprocessors: How many multiprocessors can take part at most. This is the number of the
            call's thread blocks if it is known, and else infinite.
    """

    flops: float
    moved: float
    multiprocessors: float = math.inf


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis along which the sizes of calls are compared.

    Attributes:
        name: The name of the axis.
        weight: How far apart two calls are that differ by a factor of 2 on this axis.
        is_work: Whether a call with a larger value on this axis has at least as much work, if it
            has the same kernels.
    """

    name: str
    weight: float = 1.0
    is_work: bool = True


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


@dataclass(frozen=True)
class Family:
    """A family of operators: all of their calls are described by the same axes.

    Attributes:
        name: The name of the family.
        axes: The axes.
        describe: A function of a call that returns its shape, or None if the family cannot describe
            it.
        work: A function of a call's variant and dims that returns its work.
        tensors: A function of a call's variant and dims that returns the bytes of each tensor that
            its kernels may transpose into temporary memory. None if they transpose none.
        blocks: A function of a call's variant and dims, and of the name of one of its kernels. It
            returns the number of thread blocks of that kernel, or 0 if it is unknown. None if it is
            unknown for all calls.
        axis_of_blocks: The index of the axis with which the number of thread blocks grows in
            proportion, if the efficiency of a call depends mostly on how many thread blocks a
            multiprocessor gets; else None.
    """

    name: str
    axes: tuple[Axis, ...]
    describe: Callable[[Signature], CallShape | None]
    work: Callable[[str, tuple[int, ...]], Work]
    tensors: Callable[[str, tuple[int, ...]], tuple[float, ...]] | None = None
    blocks: Callable[[str, tuple[int, ...], str], int] | None = None
    axis_of_blocks: int | None = None


def item_bytes(variant: str) -> int:
    """Returns the size in bytes of an element. The first word of `variant` is the data type."""
    return ITEM_BYTES.get(variant.partition(" ")[0], 4)
