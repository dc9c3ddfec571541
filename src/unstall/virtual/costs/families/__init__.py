"""Finds the family of an operator."""

from __future__ import annotations

from unstall.virtual.costs.families import (
    attention,
    convolutions,
    elementwise,
    indexing,
    lists,
    products,
    reductions,
    rows,
)
from unstall.virtual.costs.families.family import Axis, CallShape, Family
from unstall.virtual.costs.signature import Signature

__all__ = ["FAMILIES", "Axis", "CallShape", "Family", "describe"]

FAMILIES = {
    module.FAMILY.name: module.FAMILY
    for module in (attention, convolutions, elementwise, indexing, lists, products, reductions, rows)
}
_BY_OPERATOR = {
    f"aten::{name}": module.FAMILY
    for module in (attention, convolutions, indexing, products, reductions, rows)
    for name in module.NAMES
}


def describe(signature: Signature) -> tuple[Family, CallShape] | None:
    """Returns (family, shape) of a call, or None for a call without tensors.

    `family` is the family of the operator. `shape` is the shape of the call along the axes of this family.
    """
    family = _BY_OPERATOR.get(signature.name)
    if family is None and signature.name.startswith(("aten::_foreach_", "aten::_fused_")):
        family = lists.FAMILY
    if family is not None:
        shape = family.describe(signature)
        if shape is not None:
            return family, shape
    shape = elementwise.FAMILY.describe(signature)
    return (elementwise.FAMILY, shape) if shape is not None else None
