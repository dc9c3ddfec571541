"""Runs a function with random errors that are as large as its rounding errors. This is Monte Carlo arithmetic.

The effect of rounding on a result is measured by repeated runs with random rounding errors: see D. S. Parker, "Monte
Carlo arithmetic" (UCLA, 1997). Here, errors are added to each operator's result. A model of the operator determines the
size of the errors:

- Operators that move or choose values are exact.
- The error of one rounding is distributed uniformly, up to one unit roundoff in either direction. Its standard
  deviation is 1 / sqrt(3) roundoffs.
- A result whose elements are independent, such as an elementwise product, has the error of two roundings.
- A result that is a sum of n terms has the errors of n partial sums. The worst order adds the terms one after another.
  In this order, and for random terms, the variance of the total error grows in proportion to n. One part of it is
  proportional to the sum of the squared terms, another part to the squared result. If each partial sum had the error
  of one rounding, these would be sqrt(n / 2) roundings for each input and sqrt(n / 3) for the result (N. J. Higham and
  T. Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019). In practice most
  partial sums have smaller errors: they share leading digits with the sum before them, or lie in the upper part of
  their binade. Measured errors of 100 to 10,000 terms are 0.7 to 1.2 times 1 / sqrt(3) of these (`tests/rounding`). So
  each input gets an error of sqrt(n / 6) roundings, and the result gets an error of sqrt(n / 9) roundings.

Errors of earlier operators need no model: each operator runs on results that already have these errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from unstall.rounding.facts import (
    COMPOSITE,
    DRAWN,
    EXACT,
    PRODUCTS,
    ROUNDED,
    UNIT,
    facts_of,
    in_a_row,
    is_plain,
    real_parts,
    tensors_of,
    terms_of,
    written_by,
)

_ROUNDING = 1 / math.sqrt(3)  # standard deviation of the error of a rounding, in unit roundoffs
_ROUNDINGS = 2.0  # of an operator without sums: functions such as exp are good to that many roundoffs
_DEEPER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # the type in which sums are added up
_MAKES_FLOATS = ("rand", "randn", "normal")  # of the default type, unless a type is given


class Noise:
    """Calls operators, and adds random errors to their results that are as large as rounding
    errors. `seed` determines the errors.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls the operator `func`, and returns its result with random errors."""
        facts = facts_of(func)
        name = facts.name
        if name in EXACT or name in DRAWN or facts.is_view or (name == "_to_copy" and _is_exact_copy(args[0], kwargs)):
            return func(*args, **kwargs)
        to = kwargs.get("device")
        if name == "_to_copy" and args[0].is_cuda and to is not None and to.type == "cpu":
            # The copy may still run when it has returned. So the errors are added on the device.
            rounded = self._of_outputs(func(args[0], dtype=kwargs["dtype"]), _ROUNDINGS, _ROUNDINGS)
            return func(rounded, **kwargs)
        by_element = facts.is_pointwise or name in ROUNDED
        if by_element:
            outputs = self._of_outputs(func(*args, **kwargs), _ROUNDINGS, _ROUNDINGS)
            if name in COMPOSITE and isinstance(outputs, torch.Tensor) and outputs.shape == args[0].shape:
                outputs += self._disturbed(args[0], _ROUNDINGS) - args[0]
            return outputs
        n = in_a_row(name, terms_of(name, args))
        of_sums = _ROUNDINGS + math.sqrt(n / 9)
        if "batch_norm" in name:  # it writes the statistics among its arguments
            args = (self._disturbed(args[0], math.sqrt(n / 6)), *args[1:])
            outputs = func(*args, **kwargs)
            for each in written_by(func, args, kwargs):
                each.copy_(self._with_errors(each, UNIT[each.dtype] * of_sums))
            return self._of_outputs(outputs, 1, of_sums)
        if name in PRODUCTS and any(isinstance(each, torch.Tensor) and each.dtype in _DEEPER for each in args):
            return self._of_halves(func, args, kwargs, math.sqrt(n / 6), of_sums)
        if not facts.written:
            args, kwargs = tree_map_only(
                torch.Tensor, lambda each: self._disturbed(each, math.sqrt(n / 6)), (args, dict(kwargs))
            )
        return self._of_outputs(func(*args, **kwargs), 1, of_sums)

    def _of_halves(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], of_inputs: float, of_sums: float
    ) -> Any:
        """Calls an operator that multiplies float16 or bfloat16 tensors, and returns its result
        with random errors.

        Such an operator adds up in float32. So it is called again in float32, and the errors of its
        sums have the size that they have in that type.
        """
        outputs = func(*args, **kwargs)
        wide, named = tree_map_only(
            torch.Tensor,
            lambda each: self._disturbed(each.float(), of_inputs) if each.dtype in _DEEPER else each,
            (args, dict(kwargs)),
        )
        finer = func(*wide, **named)
        for narrow, sums in zip(tensors_of(outputs), tensors_of(finer), strict=True):
            narrow.copy_(sums)
        return self._of_outputs(outputs, 1, of_sums)

    def _disturbed(self, given: torch.Tensor, roundings: float) -> torch.Tensor:
        # Sums of half types are added up in a finer type.
        if given.dtype not in UNIT or given.dtype in _DEEPER or not is_plain(given):
            return given
        return self._with_errors(given, UNIT[given.dtype] * roundings)

    def _of_outputs(self, outputs: Any, roundings: float, of_sums: float) -> Any:
        """Adds random errors to the results of an operator.

        Args:
            outputs: The results.
            roundings: Size of the errors, in roundings of the results' type.
            of_sums: Size of further errors, in roundings of the type in which the operator adds up.
        """

        def with_errors(each: torch.Tensor) -> torch.Tensor:
            if each.dtype not in UNIT or not is_plain(each):
                return each
            inner = UNIT[_DEEPER.get(each.dtype, each.dtype)]
            size = math.hypot(UNIT[each.dtype] * roundings, inner * of_sums)
            each.copy_(self._with_errors(each, size))
            return each

        return tree_map_only(torch.Tensor, with_errors, outputs)

    def _with_errors(self, given: torch.Tensor, size: float) -> torch.Tensor:
        if given.is_complex():
            return torch.view_as_complex(self._with_errors(real_parts(given).contiguous(), size))
        wide = given.to(torch.float64)
        generator = self._generators.get(given.device)
        if generator is None:
            generator = self._generators[given.device] = torch.Generator(given.device).manual_seed(self._seed)
        drawn = torch.randn(given.shape, dtype=torch.float64, device=given.device, generator=generator)
        # Integers are taken for exact: masks, counts, and what is made of them. Large ones of a coarse type are not.
        are_integers = ((wide == wide.round()) & (wide.abs() <= 0.25 / UNIT[given.dtype])).all()
        is_exact = are_integers | ~wide.isfinite()
        changed = (wide + wide * drawn * (size * _ROUNDING)).clamp(*_range(given.dtype))
        return torch.where(is_exact, wide, changed).to(given.dtype)


def _is_exact_copy(given: torch.Tensor, kwargs: Mapping[str, Any]) -> bool:
    """Returns whether a type conversion counts as exact.

    It is exact if one of the types is not a float type, or if the new type is at least as precise.
    """
    to = kwargs.get("dtype") or given.dtype
    return given.dtype not in UNIT or to not in UNIT or UNIT[to] <= UNIT[given.dtype]


def _range(dtype: torch.dtype) -> tuple[float, float]:
    limits = torch.finfo(dtype)
    return limits.min, limits.max


def drawn_in_float32(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Calls an operator of a function that runs in float64, and returns its result.

    If the operator draws random numbers, it draws them in float32, so that the function gets the
    same numbers as in float32.
    """
    facts = facts_of(func)
    if facts.name not in DRAWN:
        return func(*args, **kwargs)
    narrow, named = tree_map_only(torch.Tensor, _narrowed, (args, dict(kwargs)))
    makes = facts.name in _MAKES_FLOATS and any(each.name == "dtype" for each in func._schema.arguments)
    if named.get("dtype") == torch.float64 or (makes and named.get("dtype") is None):
        named["dtype"] = torch.float32
    drawn = func(*narrow, **named)
    if facts.written:
        return args[0].copy_(drawn)
    return tree_map_only(torch.Tensor, lambda each: each.double() if each.is_floating_point() else each, drawn)


def _narrowed(given: torch.Tensor) -> torch.Tensor:
    return given.float() if given.dtype == torch.float64 else given
