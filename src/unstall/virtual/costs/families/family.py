"""A family of operators, whose shapes are compared along the same axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unstall.virtual.costs.signature import ITEM_BYTES, Signature

Work = tuple[float, float]
"""(floating-point operations, bytes of memory moved)"""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis along which shapes are compared. If two shapes differ by a factor of 2, their distance grows by
    `weight`.
    """

    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class CallShape:
    """The shape of one call along the axes of its family.

    Attributes:
        variants: The names of the tables of measured calls in which to look for similar calls, most similar table
            first. The first word of a name is the dtype of the computation.
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
    """Returns the work of a call, given its variant and dims."""
    tensors: Callable[[str, tuple[int, ...]], tuple[float, ...]] | None = None
    """Returns the bytes of the tensors that a call may transpose into temporary memory, given its variant and dims."""
    blocks: Callable[[str, tuple[int, ...]], float] | None = None
    """Returns how many multiprocessors the blocks of a call fill, given its variant and dims."""


def item_bytes(variant: str) -> int:
    """Returns the size in bytes of one element. The first word of a variant is the elements' dtype."""
    return ITEM_BYTES.get(variant.partition(" ")[0], 4)
