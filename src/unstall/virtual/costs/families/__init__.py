"""Families of operators: the calls of all operators of a family are described by the same axes."""

from __future__ import annotations

from unstall.virtual.costs.families import (
    attention,
    convolutions,
    elementwise,
    indexing,
    lists,
    others,
    products,
    reductions,
    rows,
    sparse,
)
from unstall.virtual.costs.families.family import Axis, CallShape, Family
from unstall.virtual.costs.signature import Signature

__all__ = ["FAMILIES", "Axis", "CallShape", "Family", "describe"]

FAMILIES = {
    module.FAMILY.name: module.FAMILY
    for module in (attention, convolutions, elementwise, indexing, lists, others, products, reductions, rows, sparse)
}
_BY_OPERATOR = {
    f"aten::{name}": module.FAMILY
    for module in (attention, convolutions, indexing, others, products, reductions, rows)
    for name in module.NAMES
}


def describe(signature: Signature) -> tuple[Family, CallShape] | None:
    """Finds the family of operators to which a call belongs, and describes the call.

    Returns:
        `(family, shape)`. `shape` is the call's value on each axis of the family, and the names of
        the tables that may have similar calls. None for a call without tensors.
    """
    family = _BY_OPERATOR.get(signature.name)
    if family is None and signature.name.startswith(("aten::_foreach_", "aten::_fused_")):
        family = lists.FAMILY
    if signature.name.startswith(sparse.PREFIX):
        family = sparse.FAMILY
    if family is not None:
        shape = family.describe(signature)
        if shape is not None:
            return family, shape
    shape = elementwise.FAMILY.describe(signature)
    return (elementwise.FAMILY, shape) if shape is not None else None
