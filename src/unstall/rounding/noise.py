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
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

UNIT = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.complex128: 2.0**-53,
    torch.complex64: 2.0**-24,
}
"""The unit roundoff of each type: half of the distance from 1 to the next larger value."""
_ROUNDING = 1 / math.sqrt(3)  # standard deviation of the error of a rounding, in unit roundoffs
_ROUNDINGS = 2.0  # of an operator without sums: functions such as exp are good to that many roundoffs
_DEEPER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # the type in which sums are added up

_EXACT_NAMES = """
    cat clone constant_pad_nd copy copy_ embedding eye fill fill_ flip full full_like gather index index_select
    lift_fresh masked_fill masked_fill_ masked_select max_pool2d_with_indices neg new_full new_ones new_zeros ones
    ones_like relu relu_ repeat roll scalar_tensor scatter select_backward select_scatter slice_backward slice_scatter
    sort stack threshold_backward topk tril triu where zero zero_ zeros zeros_like _unsafe_view _local_scalar_dense
    max min amax amin argmax argmin maximum minimum abs sign clamp clamp_ clamp_min clamp_max eq ne lt le gt ge arange
    linspace view_as_real view_as_complex _conj _reshape_alias
"""
_EXACT = frozenset(_EXACT_NAMES.split())
"""Operators that compute no value anew."""

_ROUNDED = frozenset(
    ("_to_copy", "native_dropout", "native_dropout_backward", "addcmul", "addcdiv", "lerp", "gelu_backward")
)
"""Operators without sums that torch does not tag as pointwise."""
_COMPOSITE = frozenset(("gelu", "silu", "mish", "softplus", "log_sigmoid_forward", "remainder", "fmod", "erfc"))
"""Functions by element that subtract numbers as large as their argument: those are rounded, too."""
_TREE = 128
"""Terms that a sum of floats adds one after the other. Then it adds up such sums as a tree (pairwise summation)."""
_DRAWN_NAMES = """
    rand randn rand_like randn_like randint randint_like randperm normal normal_ uniform_ bernoulli bernoulli_
    exponential_ multinomial
"""
_DRAWN = frozenset(_DRAWN_NAMES.split())
"""Operators that draw random numbers: what they draw has no error."""
_MAKES_FLOATS = ("rand", "randn", "normal")  # of the default type, unless a type is given


def is_drawn(name: str) -> bool:
    """Returns whether an operator draws random numbers."""
    return name in _DRAWN or name.startswith("native_dropout")


def _size(given: torch.Tensor, dim: int) -> int:
    return int(given.shape[dim]) if given.dim() else 1


def _last(args: tuple[Any, ...]) -> int:
    return _size(args[0], -1)


def _reduced(args: tuple[Any, ...]) -> int:
    given, dims = args[0], args[1] if len(args) > 1 else None
    dims = [dims] if isinstance(dims, int) else dims
    count = math.prod(_size(given, dim) for dim in dims) if isinstance(dims, list | tuple) and dims else given.numel()
    return int(count)


def _in_a_row(name: str, count: int) -> int:
    """Returns how many terms this operator's sums add one after another. Reductions add long sums as a tree."""
    return count if _TERMS.get(name) is not _reduced or count <= _TREE else _TREE + math.ceil(math.log2(count / _TREE))


def _kernel(args: tuple[Any, ...]) -> int:
    return int(args[1][0].numel())  # of one output channel


def _all_of(position: int) -> Callable[[tuple[Any, ...]], int]:
    return lambda args: int(args[position].numel())


def _per_channel(args: tuple[Any, ...]) -> int:
    given = max((each for each in args if isinstance(each, torch.Tensor)), key=lambda each: each.numel())
    return int(given.numel() // max(1, given.shape[1])) if given.dim() > 1 else int(given.numel())


def _keys(args: tuple[Any, ...]) -> int:
    return max(_size(each, -2) if each.dim() > 1 else 1 for each in args[:3]) + _last(args)


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
    "cumsum": lambda args: _size(args[0], args[1]),
    "logsumexp": _reduced,
    "_softmax": lambda args: _size(args[0], args[1]),
    "_log_softmax": lambda args: _size(args[0], args[1]),
    "_softmax_backward_data": lambda args: _size(args[0], args[2]),
    "_log_softmax_backward_data": lambda args: _size(args[0], args[2]),
    "embedding_dense_backward": _all_of(1),
    "embedding_bag": _all_of(1),
    "_embedding_bag": _all_of(1),
    "index_add": _all_of(2),
    "index_put": lambda args: max(int(each.numel()) for each in args[1] if each is not None),
    "scatter_add": _all_of(2),
    "scatter_reduce": _all_of(2),
}
"""How many terms each element of a result adds up, from the operator's arguments."""
PRODUCTS = frozenset(("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "convolution", "convolution_backward"))
"""Operators that add up products."""
_FAMILIES: tuple[tuple[str, Callable[[tuple[Any, ...]], int]], ...] = (
    ("attention", _keys),
    ("norm", _per_channel),
    ("loss", _all_of(0)),
)
"""The same for operators that have this in their names."""


def terms_of(name: str, args: tuple[Any, ...]) -> int:
    """Returns how many terms an element of this operator's result sums up, at most.

    For an unknown operator, this is the largest last dimension of its arguments.
    """
    given = [each for each in args if isinstance(each, torch.Tensor)]
    count = _TERMS.get(name) or _TERMS.get(name.removesuffix("_"))
    count = count or next((count for part, count in _FAMILIES if part in name and "layer" not in name), None)
    try:
        return max(1, count(args)) if count else max((_size(each, -1) for each in given), default=1)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # other arguments than are known
        return max((int(each.numel()) for each in given), default=1)


_NORMALIZES = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
"""Operators that add up, and write to running statistics, only in training. Not all of their schemas say so."""
_STATISTICS, _TRAINING = slice(3, 5), 5  # the places of these arguments


def sums_of(name: str, args: tuple[Any, ...]) -> int:
    """Returns how many terms an element of this operator's result sums up; 0 if the operator has no sums."""
    return terms_of(name, args) if adds_up(name) and not is_drawn(name) and not _only_applies(name, args) else 0


def _only_applies(name: str, args: tuple[Any, ...]) -> bool:
    """Returns whether an operator normalizes by statistics that are passed to it, and so has no sums."""
    return name in _NORMALIZES and len(args) > _TRAINING and not args[_TRAINING]


@lru_cache(1024)
def adds_up(name: str) -> bool:
    """Returns whether an operator may sum in an order that varies. Pointwise and exact operators cannot."""
    if name in _EXACT or name in _ROUNDED:
        return False
    packet = getattr(torch.ops.aten, name, None)
    return packet is None or not any(torch.Tag.pointwise in getattr(packet, each).tags for each in packet.overloads())


@lru_cache(4096)
def base_name(func: Any) -> str:
    """Returns an operator's name without its namespace and overload, such as "sum" for "aten::sum.dim_IntList"."""
    return str(func.name()).partition("::")[2].partition(".")[0]


class Noise:
    """Calls operators and adds random errors to their results, as large as their rounding errors.

    `seed` determines the errors.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls an operator, and returns its result with random errors."""
        name = base_name(func)
        if (
            name in _EXACT
            or name in _DRAWN
            or is_view(func)
            or (name == "_to_copy" and _is_exact_copy(args[0], kwargs))
        ):
            return func(*args, **kwargs)
        by_element = torch.Tag.pointwise in func.tags or name in _ROUNDED
        if by_element:
            outputs = self._of_outputs(func(*args, **kwargs), _ROUNDINGS, _ROUNDINGS)
            if name in _COMPOSITE and isinstance(outputs, torch.Tensor) and outputs.shape == args[0].shape:
                outputs += self._disturbed(args[0], _ROUNDINGS) - args[0]
            return outputs
        n = _in_a_row(name, terms_of(name, args))
        of_sums = _ROUNDINGS + math.sqrt(n / 9)
        if "batch_norm" in name:  # it writes the statistics among its arguments
            args = (self._disturbed(args[0], math.sqrt(n / 6)), *args[1:])
            outputs = func(*args, **kwargs)
            for each in written_by(func, args, kwargs):
                each.copy_(self._with_errors(each, UNIT[each.dtype] * of_sums))
            return self._of_outputs(outputs, 1, of_sums)
        if name in PRODUCTS and any(isinstance(each, torch.Tensor) and each.dtype in _DEEPER for each in args):
            return self._of_halves(func, args, kwargs, math.sqrt(n / 6), of_sums)
        if not _writes(func):
            args, kwargs = tree_map_only(
                torch.Tensor, lambda each: self._disturbed(each, math.sqrt(n / 6)), (args, dict(kwargs))
            )
        return self._of_outputs(func(*args, **kwargs), 1, of_sums)

    def _of_halves(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], of_inputs: float, of_sums: float
    ) -> Any:
        """Calls a product of float16 or bfloat16 tensors, and adds the errors of its sums.

        These sums are computed in float32.
        """
        outputs = func(*args, **kwargs)
        wide, named = tree_map_only(
            torch.Tensor,
            lambda each: self._disturbed(each.float(), of_inputs) if each.dtype in _DEEPER else each,
            (args, dict(kwargs)),
        )
        finer = func(*wide, **named)
        for narrow, sums in zip(_tensors(outputs), _tensors(finer), strict=True):
            narrow.copy_(sums)
        return self._of_outputs(outputs, 1, of_sums)

    def _disturbed(self, given: torch.Tensor, roundings: float) -> torch.Tensor:
        # Sums of half types are added up in a finer type.
        if given.dtype not in UNIT or given.dtype in _DEEPER or not is_plain(given):
            return given
        return self._with_errors(given, UNIT[given.dtype] * roundings)

    def _of_outputs(self, outputs: Any, roundings: float, of_sums: float) -> Any:
        """Adds random errors to results.

        Args:
            outputs: The results.
            roundings: Size of the errors, in roundings of the results' own type.
            of_sums: Size of further errors, in roundings of the type in which the sums are computed.
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


def _tensors(outputs: Any) -> list[torch.Tensor]:
    several = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return [each for each in several if isinstance(each, torch.Tensor)]


def _is_exact_copy(given: torch.Tensor, kwargs: Mapping[str, Any]) -> bool:
    """Returns whether a conversion rounds nothing: integers are converted, or the new type is at least as fine."""
    to = kwargs.get("dtype") or given.dtype
    return given.dtype not in UNIT or to not in UNIT or UNIT[to] <= UNIT[given.dtype]


def _range(dtype: torch.dtype) -> tuple[float, float]:
    limits = torch.finfo(dtype)
    return limits.min, limits.max


def drawn_in_float32(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Calls an operator of a function that runs in float64. Random numbers are drawn as in float32."""
    if base_name(func) not in _DRAWN:
        return func(*args, **kwargs)
    narrow, named = tree_map_only(torch.Tensor, _narrowed, (args, dict(kwargs)))
    makes = base_name(func) in _MAKES_FLOATS and any(each.name == "dtype" for each in func._schema.arguments)
    if named.get("dtype") == torch.float64 or (makes and named.get("dtype") is None):
        named["dtype"] = torch.float32
    drawn = func(*narrow, **named)
    if _writes(func):
        return args[0].copy_(drawn)
    return tree_map_only(torch.Tensor, lambda each: each.double() if each.is_floating_point() else each, drawn)


def _narrowed(given: torch.Tensor) -> torch.Tensor:
    return given.float() if given.dtype == torch.float64 else given


def is_plain(given: torch.Tensor) -> bool:
    """Returns whether a tensor has its elements in memory. Fake, nested, sparse and quantized tensors do not count."""
    usual = type(given) in (torch.Tensor, torch.nn.Parameter)
    return usual and given.layout == torch.strided and not (given.is_nested or given.is_meta or given.is_quantized)


def real_parts(given: torch.Tensor) -> torch.Tensor:
    """Returns a complex tensor as a view of its real and imaginary parts. Returns any other tensor unchanged."""
    return torch.view_as_real(given.resolve_conj()) if given.is_complex() else given


@lru_cache(4096)
def is_view(func: Any) -> bool:
    """Returns whether an operator's result shares memory with its argument."""
    return any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)


def written_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors among an operator's arguments to which it writes. Includes tensors in lists."""
    name = base_name(func)
    if name in _NORMALIZES:
        given = [] if _only_applies(name, args) else list(args[_STATISTICS])
    else:
        given = [args[at] if at < len(args) else kwargs.get(named) for at, named in _written_arguments(func)]
    each_one = [each for value in given for each in (value if isinstance(value, list | tuple) else (value,))]
    return [each for each in each_one if isinstance(each, torch.Tensor)]


@lru_cache(4096)
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    return tuple((at, each.name) for at, each in enumerate(func._schema.arguments) if _is_written(each))


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


@lru_cache(4096)
def _writes(func: Any) -> bool:
    return any(map(_is_written, func._schema.arguments))
