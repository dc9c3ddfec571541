"""Facts about torch's types and operators: how precise a type is, which operators add up and how
many terms, and to which arguments operators write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch

UNIT = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.complex128: 2.0**-53,
    torch.complex64: 2.0**-24,
}
"""The unit roundoff of each type: half of the distance from 1 to the next larger value."""

_EXACT_NAMES = """
    cat clone constant_pad_nd copy copy_ embedding eye fill fill_ flip full full_like gather index index_select
    lift_fresh masked_fill masked_fill_ masked_select max_pool2d_with_indices neg new_full new_ones new_zeros ones
    ones_like relu relu_ repeat roll scalar_tensor scatter select_backward select_scatter slice_backward slice_scatter
    sort stack threshold_backward topk tril triu where zero zero_ zeros zeros_like _unsafe_view _local_scalar_dense
    max min amax amin argmax argmin maximum minimum abs sign clamp clamp_ clamp_min clamp_max eq ne lt le gt ge arange
    linspace view_as_real view_as_complex _conj _reshape_alias
"""
EXACT = frozenset(_EXACT_NAMES.split())
"""Operators that do not round: their results count as exact."""

ROUNDED = frozenset(
    (
        *("_to_copy", "native_dropout", "native_dropout_backward", "addcmul", "addcdiv", "lerp", "gelu_backward"),
        *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
    )
)
"""Operators that add nothing up, although torch does not tag them as pointwise."""
COMPOSITE = frozenset(("gelu", "silu", "mish", "softplus", "log_sigmoid_forward", "remainder", "fmod", "erfc"))
"""Pointwise operators that subtract numbers as large as their argument on the way to the result.
These numbers are rounded, too.
"""
_TREE = 128
"""How many floats a sum of torch adds one after another. A longer sum adds up the sums of such
stretches as a tree (pairwise summation).
"""
_DRAWN_NAMES = """
    rand randn rand_like randn_like randint randint_like randperm normal normal_ uniform_ bernoulli bernoulli_
    exponential_ multinomial
"""
DRAWN = frozenset(_DRAWN_NAMES.split())
"""Operators that draw random numbers. Such numbers have no rounding error."""


def is_drawn(name: str) -> bool:
    """Returns whether the operator `name` draws random numbers. A name has neither namespace nor
    overload: "sum", not "aten::sum.dim_IntList".
    """
    return name in DRAWN or name.startswith("native_dropout")


def _size(given: torch.Tensor, dim: int) -> int:
    return int(given.shape[dim]) if given.dim() else 1


def _last(args: tuple[Any, ...]) -> int:
    return _size(args[0], -1)


def _reduced(args: tuple[Any, ...]) -> int:
    given, dims = args[0], args[1] if len(args) > 1 else None
    dims = [dims] if isinstance(dims, int) else dims
    count = math.prod(_size(given, dim) for dim in dims) if isinstance(dims, list | tuple) and dims else given.numel()
    return int(count)


def in_a_row(name: str, count: int) -> int:
    """Returns the length of the longest chain of additions, each of which needs the result of the
    one before, if the operator `name` adds up `count` terms.

    Reductions such as "sum" add long sums as a tree, so their chains are shorter than `count`.
    """
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


@dataclass(frozen=True, slots=True)
class _Recurrent:
    """Counts the terms in the sums of an operator that runs whole recurrent layers. The fields are
    positions among its arguments.
    """

    weights: slice  # the weights, or the list of them
    batch_first: int
    batch_sizes: int
    bidirectional: int | None = None  # None: it runs one direction

    def forward(self, args: tuple[Any, ...]) -> int:
        """Returns the largest number of terms that are added up in a forward pass.

        A gate adds up its inputs and hidden values. A cell adds up one term for each step.
        """
        steps = len(args[self.batch_sizes]) or _size(args[0], int(args[self.batch_first]))
        return max(steps, *(_size(one, 1) + _size(next_, 1) for one, next_ in pairwise(self._matrices(args))))

    def backward(self, args: tuple[Any, ...]) -> int:
        """Returns the largest number of terms that are added up in a backward pass.

        The gradient of a weight adds up one term for each step and sequence. The gradient of an
        input adds up one for each gate.
        """
        directions = 2 if self.bidirectional is not None and args[self.bidirectional] else 1
        rows = int(args[0].numel()) // _last(args)
        return max(rows, directions * max(_size(each, 0) for each in self._matrices(args)))

    def _matrices(self, args: tuple[Any, ...]) -> list[torch.Tensor]:
        given = args[self.weights]
        return [
            each for each in tensors_of(given[0] if isinstance(given[0], list | tuple) else given) if each.dim() > 1
        ]


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
    "mkldnn_rnn_layer": _Recurrent(slice(1, 5), batch_first=14, batch_sizes=8).forward,
    "mkldnn_rnn_layer_backward": _Recurrent(slice(1, 5), batch_first=21, batch_sizes=20).backward,
    "_cudnn_rnn": _Recurrent(slice(1, 2), batch_first=10, batch_sizes=14, bidirectional=13).forward,
    "_cudnn_rnn_backward": _Recurrent(slice(1, 2), batch_first=14, batch_sizes=18, bidirectional=17).backward,
    "_thnn_fused_lstm_cell_backward_impl": lambda args: _size(args[2], 0),
}
"""For each operator, a function that takes its arguments and returns how many terms it adds up for
an element of its result.
"""
PRODUCTS = frozenset(("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "convolution", "convolution_backward"))
"""Operators that add up products."""
_FAMILIES: tuple[tuple[str, Callable[[tuple[Any, ...]], int]], ...] = (
    ("attention", _keys),
    ("norm", _per_channel),
    ("loss", _all_of(0)),
)
"""Pairs `(text, function)`. Where the name of an operator contains the text, the function counts
its terms, as in `_TERMS`.
"""


def terms_of(name: str, args: tuple[Any, ...]) -> int:
    """Returns how many terms the operator `name` adds up, at most, for an element of its result.

    The operator is called with `args`. For an operator that is not known, returns the size of the
    largest last dimension among the tensors in `args`.
    """
    count = _counter_of(name)
    try:
        return max(1, count(args)) if count else max((_size(each, -1) for each in tensors_of(args)), default=1)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # other arguments than are known
        return max((int(each.numel()) for each in tensors_of(args)), default=1)


@lru_cache(1024)
def _counter_of(name: str) -> Callable[[tuple[Any, ...]], int] | None:
    known = _TERMS.get(name) or _TERMS.get(name.removesuffix("_"))
    return known or next((count for part, count in _FAMILIES if part in name and "layer" not in name), None)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Returns `value` in a list if it is a tensor, or the tensors among its items if it is a list
    or a tuple. Tensors in nested lists are not returned.
    """
    several = value if isinstance(value, tuple | list) else (value,)
    return [each for each in several if isinstance(each, torch.Tensor)]


_NORMALIZES = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
"""Operators that add up, and write to running statistics, only in training. Not all of their
schemas say that they write.
"""
_STATISTICS, _TRAINING = slice(3, 5), 5  # the places of these arguments


def sums_of(name: str, args: tuple[Any, ...]) -> int:
    """Returns how many terms the operator `name` adds up, at most, for an element of its result, if
    it is called with `args`. Returns 0 if it adds nothing up.
    """
    return terms_of(name, args) if adds_up(name) and not is_drawn(name) and not _only_applies(name, args) else 0


def _only_applies(name: str, args: tuple[Any, ...]) -> bool:
    """Returns whether an operator normalizes by statistics that it is given. Then it adds nothing up."""
    return name in _NORMALIZES and len(args) > _TRAINING and not args[_TRAINING]


@lru_cache(1024)
def adds_up(name: str) -> bool:
    """Returns whether the operator `name` may add up terms, so that the order of additions matters
    to its result.

    Pointwise operators and those that do not round never do. An operator that is not torch's own
    may.
    """
    if name in EXACT or name in ROUNDED:
        return False
    packet = getattr(torch.ops.aten, name, None)
    return packet is None or not any(torch.Tag.pointwise in getattr(packet, each).tags for each in packet.overloads())


_UNSET = ("empty", "new_empty")


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of an operator, read from its schema.

    Attributes:
        func: The operator.
        name: The name without namespace and overload, such as "sum" for "aten::sum.dim_IntList".
        is_view: Whether the result shares memory with an argument.
        is_unset: Whether the result has no values yet, as that of "empty".
        is_pointwise: Whether each element of the result depends on one element of each argument.
        written: `(position, name)` of each argument to which the operator writes.
    """

    func: Any
    name: str
    is_view: bool
    is_unset: bool
    is_pointwise: bool
    written: tuple[tuple[int, str], ...]


def facts_of(func: Any) -> Facts:
    """Returns the properties of an operator, read from its schema. `func` is a `torch._ops.OpOverload`."""
    return _known.get(id(func)) or _facts_of(func)


_known: dict[int, Facts] = {}  # by identity: to hash an operator takes longer than all else here


def _facts_of(func: Any) -> Facts:
    schema = func._schema
    name = str(func.name()).partition("::")[2].partition(".")[0]
    is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    written = tuple((at, each.name) for at, each in enumerate(schema.arguments) if _is_written(each))
    found = Facts(func, name, is_view, name.startswith(_UNSET), torch.Tag.pointwise in func.tags, written)
    return _known.setdefault(id(func), found)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def written_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors to which the operator `func` writes if it is called with `args` and
    `kwargs`, including tensors in lists.
    """
    facts = facts_of(func)
    if facts.name in _NORMALIZES:
        given = [] if _only_applies(facts.name, args) else list(args[_STATISTICS])
    elif facts.written:
        given = [args[at] if at < len(args) else kwargs.get(named) for at, named in facts.written]
    else:
        return []
    return [each for value in given for each in tensors_of(value)]


def may_be_on_its_way(func: Any, args: tuple[Any, ...], result: torch.Tensor) -> bool:
    """Returns whether a device may still be writing to `result`, which `func` has just returned for `args`.

    It may if the result is in pinned memory of the host, an argument is on a device, and the operator is no `copy_`
    that waits. Operators of the CPU end before they return.
    """
    if result.is_cuda or not any(each.is_cuda for value in args for each in tensors_of(value)):
        return False
    waits = facts_of(func).name == "copy_" and not any(args[2:])  # the third argument is `non_blocking`
    return not waits and result.is_pinned()


def is_plain(given: torch.Tensor) -> bool:
    """Returns whether `given` is an ordinary tensor, with its elements in memory. Fake, meta,
    nested, sparse and quantized tensors are not.
    """
    usual = type(given) in (torch.Tensor, torch.nn.Parameter)
    return usual and given.layout == torch.strided and not (given.is_nested or given.is_meta or given.is_quantized)


def real_parts(given: torch.Tensor) -> torch.Tensor:
    """Returns a complex tensor as a view with one dimension more, for the real and the imaginary
    part. Returns any other tensor as it is.
    """
    return torch.view_as_real(given.resolve_conj()) if given.is_complex() else given
