"""Runs a function with random errors of the size of its rounding errors: Monte Carlo arithmetic.

What rounding does to a result is found by running again with rounding errors that are drawn anew: see D. S. Parker,
"Monte Carlo arithmetic" (UCLA, 1997). Here, they are added to each operator's result, by a model of that operator:

- Operators that move or choose values are exact.
- One rounding has an error that is spread evenly, up to a unit roundoff in either direction: a standard deviation of
  1 / sqrt(3) roundoffs.
- A result of independent elements, such as a product by element, has the error of two roundings.
- A result that adds up n terms has the errors of n partial sums. If they are added one after the other, which is the
  worst order, the squares of the partial sums of random terms grow to n / 6 times those of the terms, and n / 9 times
  those of the result: so the inputs get errors of sqrt(n / 6) roundings, and the result of sqrt(n / 9) (N. J. Higham
  and T. Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019).

Errors that earlier operators made come on top by themselves, since the operators run on results that have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

UNIT = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
"""The unit roundoff of each type: half of the distance from 1 to the next larger value."""
_ROUNDING = 1 / math.sqrt(3)  # standard deviation of the error of a rounding, in unit roundoffs
_ROUNDINGS = 2.0  # of an operator without sums: functions such as exp are good to that many roundoffs
_DEEPER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # the type in which sums are added up

_EXACT_NAMES = """
    alias as_strided cat chunk clone constant_pad_nd copy_ detach diagonal embedding empty empty_like empty_strided
    expand expand_as eye fill_ fill flatten flip full full_like gather index index_select lift_fresh masked_fill
    masked_fill_ masked_select max_pool2d_with_indices movedim narrow neg new_empty new_empty_strided new_full new_ones
    new_zeros ones ones_like permute relu relu_ repeat reshape roll scalar_tensor scatter select slice slice_scatter
    sort split split_with_sizes squeeze stack t threshold_backward topk transpose tril triu unbind unfold unsqueeze
    view where zero_ zeros zeros_like _unsafe_view _reshape_alias _local_scalar_dense max min amax amin argmax argmin
    maximum minimum abs sign clamp clamp_min clamp_max eq ne lt le gt ge select_backward slice_backward
    arange linspace
"""
_EXACT = frozenset(_EXACT_NAMES.split())
"""Operators that compute no value anew."""

_ROUNDED = frozenset(
    ("_to_copy", "native_dropout", "native_dropout_backward", "addcmul", "addcdiv", "lerp", "gelu_backward")
)
"""Operators without sums that torch does not tag as pointwise."""
_DRAWN_NAMES = """
    rand randn rand_like randn_like randint randint_like randperm normal normal_ uniform_ bernoulli bernoulli_
    exponential_ multinomial
"""
_DRAWN = frozenset(_DRAWN_NAMES.split())
"""Operators that draw random numbers: what they draw has no error."""


def is_drawn(name: str) -> bool:
    """Returns whether an operator draws random numbers."""
    return name in _DRAWN or name.startswith("native_dropout")


def _last(args: tuple[Any, ...]) -> int:
    return int(args[0].shape[-1])


def _reduced(args: tuple[Any, ...]) -> int:
    given, dims = args[0], args[1] if len(args) > 1 else None
    dims = [dims] if isinstance(dims, int) else dims
    return int(math.prod(given.shape[dim] for dim in dims)) if dims else int(given.numel())


def _kernel(args: tuple[Any, ...]) -> int:
    return int(args[1][0].numel())  # of one output channel


def _all_of(position: int) -> Callable[[tuple[Any, ...]], int]:
    return lambda args: int(args[position].numel())


_TERMS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "mm": _last,
    "bmm": _last,
    "mv": _last,
    "dot": _last,
    "addmm": lambda args: _last(args[1:]),
    "baddbmm": lambda args: _last(args[1:]),
    "addmv": lambda args: _last(args[1:]),
    "convolution": _kernel,
    "convolution_backward": lambda args: max(int(args[0][:, 0].numel()), int(args[2].numel() // args[2].shape[1])),
    "sum": _reduced,
    "mean": _reduced,
    "var": _reduced,
    "var_mean": _reduced,
    "std": _reduced,
    "prod": _reduced,
    "linalg_vector_norm": _all_of(0),
    "cumsum": lambda args: int(args[0].shape[args[1]]),
    "logsumexp": _reduced,
    "_softmax": lambda args: int(args[0].shape[args[1]]),
    "_log_softmax": lambda args: int(args[0].shape[args[1]]),
    "_softmax_backward_data": lambda args: int(args[0].shape[args[2]]),
    "_log_softmax_backward_data": lambda args: int(args[0].shape[args[2]]),
    "embedding_dense_backward": _all_of(1),
    "index_add": _all_of(2),
    "scatter_add": _all_of(2),
}
"""How many terms each element of a result adds up, from the operator's arguments."""


def terms_of(name: str, args: tuple[Any, ...]) -> int:
    """Returns how many terms an element of this operator's result adds up, at most. Unknown operators: all elements."""
    if name in _TERMS:
        return max(1, _TERMS[name](args))
    given = [each for each in args if isinstance(each, torch.Tensor)]
    return max((_last((each,)) if each.dim() else 1 for each in given), default=1)


def base_name(func: Any) -> str:
    """Returns an operator's name without its namespace and overload: "sum" of "aten::sum.dim_IntList"."""
    return str(func.name()).partition("::")[2].partition(".")[0]


class Noise:
    """Calls operators as they are, but with random errors in their results. `seed` selects which."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls an operator, and returns its result with errors."""
        name = base_name(func)
        if name in _EXACT or name in _DRAWN or is_view(func):
            return func(*args, **kwargs)
        if torch.Tag.pointwise in func.tags or name in _ROUNDED or _writes(func):
            return self._of_outputs(func(*args, **kwargs), _ROUNDINGS, _ROUNDINGS)
        n = terms_of(name, args)
        disturbed = tree_map_only(torch.Tensor, lambda each: self._disturbed(each, math.sqrt(n / 6)), (args, kwargs))
        return self._of_outputs(func(*disturbed[0], **disturbed[1]), 1, _ROUNDINGS + math.sqrt(n / 9))

    def _disturbed(self, given: torch.Tensor, roundings: float) -> torch.Tensor:
        if given.dtype not in UNIT or given.dtype in _DEEPER:  # sums of those are added up in a type that is finer
            return given
        return self._with_errors(given, UNIT[given.dtype] * roundings)

    def _of_outputs(self, outputs: Any, roundings: float, of_sums: float) -> Any:
        """Adds errors to results: of `roundings` to their type, and of `of_sums` to that in which sums are added up."""

        def with_errors(each: torch.Tensor) -> torch.Tensor:
            if each.dtype not in UNIT:
                return each
            inner = UNIT[_DEEPER.get(each.dtype, each.dtype)]
            size = math.hypot(UNIT[each.dtype] * roundings, inner * of_sums)
            each.copy_(self._with_errors(each, size))
            return each

        return tree_map_only(torch.Tensor, with_errors, outputs)

    def _with_errors(self, given: torch.Tensor, size: float) -> torch.Tensor:
        wide = given.to(torch.float64)
        generator = self._generators.get(given.device)
        if generator is None:
            generator = self._generators[given.device] = torch.Generator(given.device).manual_seed(self._seed)
        drawn = torch.randn(given.shape, dtype=torch.float64, device=given.device, generator=generator)
        return (wide + wide * drawn * (size * _ROUNDING)).to(given.dtype)


def is_view(func: Any) -> bool:
    """Returns whether an operator's result is part of its argument's memory."""
    return any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)


def _writes(func: Any) -> bool:
    return any(each.alias_info is not None and each.alias_info.is_write for each in func._schema.arguments)
