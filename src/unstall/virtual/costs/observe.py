"""Signatures of operators that torch runs: the same as the virtual GPU's log has. Needs torch."""

from __future__ import annotations

from typing import Any

import torch

from unstall.virtual.costs.signature import Signature, TensorSpec


def signature_of(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Signature:
    """The signature of one call of an `OpOverload`, its defaults filled in."""
    schema = operator._schema
    values = []
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            value = args[position]
        else:
            value = kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
        values.append(_argument(value))
    results = result if isinstance(result, (tuple, list)) else (result,)
    overload = operator._overloadname
    return Signature(
        schema.name, "" if overload == "default" else overload, tuple(values), tuple(map(_argument, results))
    )


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return TensorSpec(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_argument, value))
    if isinstance(value, float):
        return ("s", value != 0.0)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)
