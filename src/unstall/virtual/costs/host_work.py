"""Predicts how long an operator on CPU tensors takes on the modelled host: from the bytes that it
reads and writes, the FLOPs of matrix products, and a cost per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil, prod

from unstall.virtual.costs.families import CallShape, describe
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.costs.signature import Signature, TensorSpec

_GRAIN = 32_768
"""The number of elements from which on torch uses one more CPU thread: at::internal::GRAIN_SIZE."""
_PAGE = 4_096
_FRESH_BYTES = 32 << 20
"""A result of at least this many bytes has pages that were never used before. glibc's malloc asks
the operating system for an allocation of this size, and returns it when it is freed
(DEFAULT_MMAP_THRESHOLD_MAX).
"""
_PLAIN_PRODUCT = 400
"""If each product of two matrices in a bmm takes fewer multiplications than this, at::native::bmm
computes it in simple loops, one number at a time.
"""
_CHEAP, _FUNCTION, _COSTLY = 40.0, 80.0, 230.0
_FLOPS = {
    **dict.fromkeys(("sqrt", "rsqrt", "reciprocal", "div", "sigmoid", "silu", "gelu"), _CHEAP),
    **dict.fromkeys(("_softmax", "_log_softmax", "native_layer_norm", "native_batch_norm", "native_group_norm"), 55.0),
    **dict.fromkeys(("exp", "expm1", "log", "log1p", "log2", "erf", "sin", "cos", "cumsum", "cumprod"), _FUNCTION),
    **dict.fromkeys(("argmax", "argmin", "max", "min", "scatter_add", "index_add"), _FUNCTION),
    **dict.fromkeys(("tanh", "tan", "pow", "atan", "asin", "acos", "erfinv", "sinh", "cosh", "softplus"), _COSTLY),
    **dict.fromkeys(("uniform", "random", "where", "index", "gather", "scatter", "index_put", "topk"), 250.0),
    **dict.fromkeys(("normal", "randperm", "nonzero", "masked_select", "masked_fill"), 400.0),
    **dict.fromkeys(("bernoulli", "multinomial"), 1_000.0),
    **dict.fromkeys(("exponential", "geometric", "cauchy", "log_normal"), 1_700.0),
    **dict.fromkeys(("_unique2", "unique_dim", "unique_consecutive"), 2_700.0),
    **dict.fromkeys(("sort", "argsort", "median", "kthvalue", "mode"), 7_500.0),
}
"""By operator, what an element costs, in FLOPs of a matrix product: at a cost of 80, an element
takes as long as 80 FLOPs of a matrix product. Measured on one core of a server (AMD EPYC, torch
2.13, tensors of 262,144 float32). Example: an element of `exp` takes 0.8 ns, and matrix products
reach 95 FLOPs per ns.
"""
_READ_IN_PART = {"index", "gather", "take", "index_select", "embedding"}
_WRITTEN_IN_PART = {"scatter", "scatter_add", "scatter_reduce", "index_add", "index_put", "index_copy", "index_fill"}
_ONE_THREAD = {
    *("uniform", "random", "normal", "randperm", "bernoulli", "multinomial", "exponential", "geometric", "cauchy"),
    *("log_normal", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
}
_ALLOCATING = {"aten::empty": 4, "aten::empty_strided": 5}
"""By operator that only allocates, the position of its argument `pin_memory`. What it costs to pin
pages is charged elsewhere, for the log's PIN record.
"""
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def host_work_ns(signature: Signature, threads: int, host: HostCosts) -> int:
    """Returns for how long an operator on CPU tensors computes, in ns.

    Args:
        signature: The call. Its name has no `CPU_PREFIX`.
        threads: The number of threads that the program set; 0 if it set none, as torch then uses
            all cores.
        host: The costs of the modelled host.
    """
    name = signature.name.removeprefix("aten::")
    kind = name.removesuffix("_").removesuffix("_backward")
    touched = _touched(kind, signature)
    shape, flops, moved = _work(signature, touched)
    elements = max((tensor.numel for tensor in touched), default=0)
    cores = min(threads or host.cores, host.cores)
    used = 1 if kind in _ONE_THREAD else min(cores, max(1, ceil(elements / _GRAIN)))
    rate = host.flops_per_us
    if shape is not None and name in ("bmm", "baddbmm") and prod(shape.dims[1:4]) < _PLAIN_PRODUCT:
        rate = host.scalar_flops_per_us
    elif shape is not None and shape.variants[0].startswith("float64"):
        rate //= 2
    computing = (flops / rate + elements * _FLOPS.get(kind, 0.0) / host.flops_per_us) / used
    moving = moved / _bytes_per_us(moved, used, host)
    pages = sum(ceil(tensor.distinct_bytes / _PAGE) for tensor in _fresh(name, signature))
    return round(1_000 * max(computing, moving)) + pages * host.page


def _touched(kind: str, signature: Signature) -> tuple[TensorSpec, ...]:
    """Returns the tensors that an operator reads or writes as a whole. The table of a lookup is not
    among them, nor is the tensor to which a scatter writes in place.

    Args:
        kind: The name of the operator, without "aten::", a last "_" and "_backward".
        signature: The call.
    """
    if kind in _READ_IN_PART:
        return (*signature.tensors[1:], *signature.results)
    if kind in _WRITTEN_IN_PART and signature.name.endswith("_"):
        return signature.tensors[1:]
    return (*signature.tensors, *signature.results)


def _work(signature: Signature, touched: Sequence[TensorSpec]) -> tuple[CallShape | None, float, float]:
    """Returns the work of an operator.

    Args:
        signature: The call.
        touched: The tensors that the operator reads or writes as a whole.

    Returns:
        `(shape, flops, bytes)`: the shape of the call in its family of operators, its FLOPs, and
        the bytes that it reads and writes. If no family can describe the call, or if the operator
        uses only a part of some tensor, `shape` is None, `flops` is 0, and `bytes` are those of
        `touched`. If the operator only allocates, `bytes` is 0 too.
    """
    if signature.name in _ALLOCATING:
        return None, 0.0, 0.0
    name = signature.name.replace(_ATTENTION, _ATTENTION.removesuffix("_for_cpu"))
    as_a_whole = len(touched) == len(signature.tensors) + len(signature.results)
    with suppress(LookupError, ValueError, TypeError, ArithmeticError):
        described = describe(replace(signature, name=name)) if as_a_whole else None
        if described is not None:
            family, shape = described
            return shape, *family.work(shape.variants[0], shape.dims)[:2]
    return None, 0.0, float(sum(each.distinct_bytes for each in touched))


def _bytes_per_us(moved: float, threads: int, host: HostCosts) -> float:
    if moved <= host.cached_bytes:
        return threads * host.cached_bytes_per_us
    return min(threads * host.memory_bytes_per_us, host.all_memory_bytes_per_us)


def _fresh(name: str, signature: Signature) -> tuple[TensorSpec, ...]:
    """Returns the results whose memory has pages that were never used before: large ones that are
    not pinned. Returns none if the operator writes its results into arguments: its name then ends
    with "_", or its overload with "out".
    """
    pinned = signature.name in _ALLOCATING and signature.value(_ALLOCATING[signature.name])
    if pinned or name.endswith("_") or signature.overload.endswith("out"):
        return ()
    return tuple(tensor for tensor in signature.results if tensor.distinct_bytes >= _FRESH_BYTES)
