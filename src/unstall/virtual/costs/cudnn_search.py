"""What `torch.backends.cudnn.benchmark = True` costs: before the first convolution with given shapes, and before the
first computation of its gradients, torch runs all of cuDNN's algorithms for it.

It allocates the workspace of the algorithm that needs the largest one, and then empties the cache of its allocator
(`aten/src/ATen/native/cudnn/Conv_v8.cpp`). The model is of 146 searches on an H200; 160 others judge it
(`benchmarks/cudnn_search.py`). Which algorithm is the fastest is not modelled: later calls take the time of the one
that cuDNN chooses without a search.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from unstall.virtual.costs.families import convolutions, describe
from unstall.virtual.costs.model import OperatorCost
from unstall.virtual.costs.signature import Signature, TensorSpec

PREFIX = "cudnn::search_"
"""A search is a call of its own in the log, with the arguments of the convolution. This is before the name."""
_FORWARD_NS = 250_000_000
_GRADIENT_NS = 420_000_000
"""The means, so that the first step of a network takes about as long in all. Most searches of a forward pass take 50 to
70 ms, and one in five about a second, as it loads another part of cuDNN. Those of both gradients take 0.06 to 1.8 s."""
_COMPLEX_BYTES = 8
_LONGEST = 256
"""The longest side of the images that the FFT transforms at once."""
_SHORT = 32
"""The side of the transforms of strided convolutions, which have four of them for each channel."""
_SUMS_BYTES = 9_000_000
"""What gradients in 16 bits need for sums in float32, in the median."""


def is_search(signature: Signature) -> bool:
    """Returns whether a call in the log is a search for the fastest algorithm of a convolution."""
    return signature.name.startswith(PREFIX)


def search_cost(search: Signature) -> OperatorCost:
    """Returns the cost of a search. It has no kernels: while the algorithms run, the host waits. A convolution that
    torch's own kernels compute is not searched for."""
    signature = replace(search, name=f"aten::{search.name.removeprefix(PREFIX)}")
    described = describe(signature)
    if described is None or described[0] is not convolutions.FAMILY:
        return OperatorCost(())
    variant = described[1].variants[0]
    if not convolutions.is_searched(variant):
        return OperatorCost(())
    backward = "backward" in signature.name
    gradients = sum(signature.value(len(signature.inputs) - 1, ())[:2]) if backward else 1  # torch adds up the bias's
    return OperatorCost(
        (),
        temporaries=((_workspace_bytes(signature, backward),),) * gradients,
        first_ns=_GRADIENT_NS * gradients if backward else _FORWARD_NS,
        empties_cache=True,
        fallback=OperatorCost(()),
    )


def _workspace_bytes(signature: Signature, backward: bool) -> int:
    """Returns the largest workspace of the algorithms.

    In float32 that is the one of an FFT: for the filters and for the images, the transforms of two steps, of numbers
    with a real and an imaginary part. Others need copies in another layout, and sums in float32.
    """
    first = 1 if backward else 0
    x, weight = signature.tensors[first], signature.tensors[first + 1]
    copied = 2 * (x.distinct_bytes + weight.distinct_bytes)
    if x.dtype != "float32":
        return copied + (_SUMS_BYTES if backward else 0)
    strided = max(signature.value(3 + first, (1,))) > 1
    dilated = max(signature.value((4 if "cudnn_" in signature.name else 5) + first, (1,))) > 1
    by_fft = not dilated and len(x.sizes) == 4 and (prod(weight.sizes[2:]) > 1 or (backward and not strided))
    return max(copied, _fft_bytes(x, weight, strided, backward)) if by_fft else copied


def _fft_bytes(x: TensorSpec, weight: TensorSpec, strided: bool, backward: bool) -> int:
    """Returns the workspace of the FFT for a convolution, or 0 if no FFT is tried."""
    planes = prod(weight.sizes[:2]) + prod(x.sizes[:2])
    sides = [_power(side + taps - 1) for side, taps in zip(x.sizes[2:], weight.sizes[2:], strict=True)]
    if strided:
        return 4 * planes * _transform(_SHORT, _SHORT) + 2 * x.distinct_bytes if backward else 0
    return 2 * planes * _transform(*sides) if max(sides) <= _LONGEST else 0


def _transform(high: int, wide: int) -> int:
    """Returns the bytes of the transform of an image of real numbers."""
    return _COMPLEX_BYTES * high * (wide // 2 + 1)


def _power(side: int) -> int:
    """Returns the power of 2 that is not smaller than `side`."""
    return 1 << max(side - 1, 1).bit_length()
