"""A family of operators: the figures that decide their cost, by which shapes are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unstall.virtual.costs.signature import ITEM_BYTES, Signature

Work = tuple[float, float]
"""(floating-point operations, bytes of memory moved)"""


@dataclass(frozen=True, slots=True)
class Axis:
    """One figure of a shape. `weight`: how much a doubling of it separates two shapes."""

    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class CallShape:
    """A call as a family describes it. `variants` are names of tables to look in, the most similar first; their first
    word is the dtype of the computation. `dims` are the figures of the family's axes.
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
    """Of a variant and figures."""
    tensors: Callable[[str, tuple[int, ...]], tuple[float, ...]] | None = None
    """Bytes of the tensors that a call may turn on the way, in temporary memory: of a variant and figures."""


def item_bytes(variant: str) -> int:
    """Of the type that is a variant's first word."""
    return ITEM_BYTES.get(variant.partition(" ")[0], 4)
