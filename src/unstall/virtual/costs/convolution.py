"""The calls that CUDA runs for a convolution, as ATen's `_convolution` makes them: copies of arguments, the convolution
or its gradients, and the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unstall.virtual.costs.piece import Piece, copied, laid_out
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

OTHERS = "others"
"""In the log, the overload of a backward without its first gradient, which was launched before the memory of the others
was allocated.
"""
_CUDNN_NS, _CUDNN_KERNEL_NS, _NEXT_GRADIENT_NS = 9_700, 3_500, 10_600
_ADDITION_NS, _SUM_NS = 8_600, 9_000
"""How long the host works on parts of a convolution, besides the launches: how much more on a convolution of cuDNN than
on one of torch's own, and on each of its kernels but the first; on a second gradient; on adding a bias, and on the sum
that is its gradient. Means over six convolutions in float32 on an H200, less what the rest of the call costs here
(benchmarks/results/conv_host_h200.json).
"""


def without_bias(signature: Signature) -> tuple[Signature, Signature] | None:
    """Splits a convolution with a bias into two calls.

    Returns:
        For a forward call: the convolution without its bias, and the addition of the bias. For a
        backward call: the backward without the gradient of the bias, and the sum that computes this
        gradient. None if the convolution has no bias.
    """
    if signature.name == "aten::convolution_backward":
        mask = signature.value(len(signature.inputs) - 1, ())
        gradient = signature.tensor(0)
        if len(mask) != 3 or not mask[2] or gradient is None:
            return None
        bare = replace(signature, inputs=(*signature.inputs[:-1], (*mask[:2], False)))
        kept = gradient.sizes[1]
        dims = (0, *range(2, len(gradient.sizes)))
        of_bias = TensorSpec(gradient.dtype, (kept,), (1,))
        return bare, Signature("aten::sum", "dim_IntList", (gradient, dims, False, None), (of_bias,))
    bias = signature.tensor(2)
    if bias is None or not signature.results:
        return None
    out = signature.results[0]
    bare = replace(signature, inputs=(*signature.inputs[:2], None, *signature.inputs[3:]))
    ones = (1,) * (len(out.sizes) - 2)
    spread = TensorSpec(bias.dtype, (1, out.sizes[1], *ones), (out.sizes[1], 1, *ones))
    return bare, Signature("aten::add_", "Tensor", (out, spread, 1), (out,))


def by_cudnn(signature: Signature, bias: Signature | None = None) -> tuple[Piece, ...]:
    """Returns the pieces of a forward pass that cuDNN computes: the convolution, and the addition of its bias if there
    is one.
    """
    added = (Piece(bias, host_ns=_ADDITION_NS),) if bias else ()
    return (Piece(signature, host_ns=_CUDNN_NS, between_ns=_CUDNN_KERNEL_NS), *added)


def by_gradient(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of the backward of a convolution: one for each gradient that it computes,
    of the input, of the weight and of the bias, in this order. A call of the overload OTHERS has
    the gradients after the first.
    """
    bare, *bias = without_bias(signature) or (signature,)
    mask = bare.value(len(bare.inputs) - 1, ())
    wanted = [tuple(at == place for at in range(3)) for place, asked in enumerate(mask) if asked]
    gradients = [replace(bare, inputs=(*bare.inputs[:-1], only)) for only in wanted]
    before = (_NEXT_GRADIENT_NS if signature.overload == OTHERS else 0, *[_NEXT_GRADIENT_NS] * len(gradients))
    pieces = (Piece(each, host_ns=ns, between_ns=_CUDNN_KERNEL_NS) for each, ns in zip(gradients, before, strict=False))
    return (*pieces, *(Piece(each, host_ns=_SUM_NS) for each in bias))


def in_one_format(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a convolution whose arguments have different layouts (NHWC and NCHW):
    copies of arguments into the layout of the input, and then the convolution of these copies.
    """
    backward = signature.name == "aten::convolution_backward"
    first = 1 if backward else 0
    x, weight, gradient = (signature.tensor(at) for at in (first, first + 1, 0))
    if x is None or weight is None or gradient is None:
        return (Piece(signature),)
    instead = {}
    if backward and gradient.layout != x.layout:
        instead[0] = TensorSpec(
            gradient.dtype,
            gradient.sizes,
            _nhwc(gradient.sizes) if x.layout == "l" else contiguous_strides(gradient.sizes),
        )
    if x.layout == "l" and len(weight.sizes) == 4 and weight.layout == "c":
        turned = TensorSpec(weight.dtype, weight.sizes, _nhwc(weight.sizes))
        if turned.layout == "l":  # with one channel or one tap, both layouts are the same
            instead[first + 1] = turned
    return copied(signature, instead)


def convolved(*positions: int) -> Callable[[Signature], tuple[Piece, ...]]:
    """Returns a function that returns the pieces of a convolution: copies of the arguments at
    `positions` that are neither NCHW nor NHWC, and then the convolution.
    """

    def split(signature: Signature) -> tuple[Piece, ...]:
        laid = {}
        for position in positions:
            x = signature.tensor(position)
            if x is not None and x.layout == "s":
                laid[position] = laid_out(x)
        return copied(signature, laid)

    return split


def _nhwc(sizes: tuple[int, ...]) -> tuple[int, ...]:
    _, channels, height, width = sizes
    return (channels * height * width, 1, channels * width, channels)
