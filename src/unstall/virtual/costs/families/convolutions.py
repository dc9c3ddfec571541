"""Convolutions. cuDNN chooses their kernels by heuristics. If a kernel needs another memory layout,
cuDNN transposes the tensors before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import combinations
from math import prod

from unstall.virtual.costs.families.conv_kernels import algorithm, places, temporaries
from unstall.virtual.costs.families.family import Axis, CallShape, Choice, Family, Found, Target, Work, item_bytes
from unstall.virtual.costs.families.products import tiles
from unstall.virtual.costs.occupancy import tile_of
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

_DEPTHWISE = re.compile(r"conv_depthwise2d_(forward|backward)_kernel")
_RESULTS_OF_BLOCK = 1_024
_TURNS = re.compile("nchwToNhwc|nhwcToNchw")
_TURNED = 32
_COMPUTES = {"x": re.compile("depthwise2d_backward_kernel|dgrad"), "w": re.compile("grad_weight|wgrad")}
"""Matches the kernels that compute the gradient of the input, and of the weight, where each has kernels of its own."""
_OF_ONE = ("backward-x", "backward-w")
NAMES = ("convolution", "convolution_overrideable", "_convolution", "cudnn_convolution", "convolution_backward")
OPERATORS = frozenset(f"aten::{name}" for name in NAMES)


def describe(signature: Signature) -> CallShape | None:
    """Describes a convolution, or the backward of one. Returns None if its arguments are not those
    of a convolution.

    A backward call has the same sizes as its forward call, and its variant says which gradients it
    computes. In the names of variants, "float32" is TF32, and "ieee" is float32 without TF32.

    A transposed convolution is described as what cuDNN computes for it: its output is the gradient of
    the input of a convolution, the gradient of its input is that convolution's output, and the
    gradient of its weight is that convolution's, with input and output swapped.
    """
    backward = "backward" in signature.name
    first = 1 if backward else 0
    x, weight = signature.tensor(first), signature.tensor(first + 1)
    if x is None or weight is None or len(x.sizes) < 3:
        return None
    out = signature.tensor(0) if backward else signature.results[0] if signature.results else None
    if out is None:
        return None
    transposed = bool(signature.value(7 if backward else 6, False)) and not signature.name.endswith("cudnn_convolution")
    if transposed:
        x, out = out, x
    groups = max(1, x.sizes[1] // max(1, weight.sizes[1]))
    if backward:
        mask = signature.value(len(signature.inputs) - 1, ())
        gradients = "".join(letter for letter, wanted in zip("xwb", mask, strict=False) if wanted)
        kind = "forward" if transposed and gradients == "x" else f"backward-{gradients or 'xw'}"
    elif transposed:
        kind = "backward-x"
    else:
        kind = "forward-bias" if signature.tensor(2) is not None else "forward"
    layouts = x.layout + weight.layout + (out.layout if kind.startswith("backward") else "")
    usual = "lcl"[: len(layouts)] if "l" in layouts else "ccc"[: len(layouts)]
    taps = prod(weight.sizes[2:])
    depthwise = groups > 1 and groups == x.sizes[1] and not transposed
    step = _step(x, out)
    shape = (
        "depthwise"
        if depthwise
        else "grouped"
        if groups > 1
        else "pointwise"
        if taps == 1
        else "patches"
        if step * step == taps
        else "dense"
    )
    dims = (
        x.sizes[0],
        x.sizes[1],
        out.sizes[1],
        prod(x.sizes[2:]),
        prod(out.sizes[2:]),
        taps,
        groups,
        _form(x),
    )
    dtype = "ieee" if x.dtype == "float32" and signature.precision == "ieee" else x.dtype
    other = {"depthwise": "grouped", "grouped": "dense", "patches": "dense", "pointwise": "dense", "dense": "patches"}[
        shape
    ]
    plain = kind.removesuffix("b")
    if kind.startswith("forward"):
        kinds = [kind, "forward"]
    elif plain in _OF_ONE and not depthwise:
        kinds = [kind, plain]
    else:
        kinds = [kind, f"{plain}b", plain, "backward-xw", "backward-xwb"]
    looked = [
        (dtype, kind, shape, layouts),
        *((dtype, at, shape, layouts) for at in kinds),
        *((dtype, at, shape, usual) for at in kinds),
    ]
    looked += [(dtype, at, shape, "c" * len(layouts)) for at in kinds] + [
        (dtype, at, other, "c" * len(layouts)) for at in kinds
    ]
    if dtype == "ieee":  # more was measured in TF32
        looked += [("float32", at, form, layout) for _, at, form, layout in looked]
    looked += [("float32", at, form, "c" * len(layouts)) for form in (shape, other, "dense") for at in kinds]
    variants = [" ".join(parts) for parts in looked]
    return CallShape(tuple(dict.fromkeys(variants)), dims)


def has_parts(variant: str) -> bool:
    """Returns whether a backward of a variant (see `CallShape`) runs the gradients one after the
    other, without copies that several of them need: whether all tensors have the same layout, and
    cuDNN computes the gradients.
    """
    _, _, shape, layouts = variant.split()
    return shape != "depthwise" and layouts in ("cc", "lc", "ll", "ccc", "lcl", "lll")


def is_by_cudnn(variant: str) -> bool:
    """Returns whether cuDNN computes the passes of a variant (see `CallShape`). Torch computes those of each channel
    alone.
    """
    return variant.split()[2] != "depthwise"


def is_searched(variant: str) -> bool:
    """Returns whether cuDNN computes the passes of a variant, so that torch can search for its fastest algorithm. Torch
    computes those of each channel alone, unless they are channels last or in float16."""
    dtype, _, shape, layouts = variant.split()
    return shape != "depthwise" or dtype == "float16" or "l" in layouts


def _computed(variant: str) -> str:
    """Returns the letters of the gradients that a backward variant computes: of the input (x), the weight, the bias."""
    return variant.split()[1].partition("-")[2]


def products(signature: Signature) -> tuple[Signature, ...]:
    """Returns the matrix products that a convolution computes without tensor cores: one for its
    output, or one for each gradient. Returns none for a convolution with groups. Sources: the
    implicit GEMM of cuDNN (Chetlur et al., 2014, arXiv:1410.0759), and Winograd's algorithm F(2x2,
    3x3) (Lavin and Gray, 2016, arXiv:1509.09308), which cuDNN has for outputs and for gradients of
    the input: 16 products in place of 36, for each 2 x 2 results of 3 x 3 filters that move by one.
    """
    shape = describe(signature)
    if shape is None or shape.dims[6] > 1:
        return ()
    batch, channels, filters, area, out_area, taps, *_ = shape.dims
    out = batch * out_area, channels * taps, filters
    of_input = batch * area, filters * taps, channels
    of_weight = filters, batch * out_area, channels * taps
    if _fits_winograd(signature):
        out = 4 * batch * out_area, channels, filters
        of_input = 4 * batch * area, filters, channels
    kind = shape.variants[0].split()[1]
    if kind.startswith("forward"):
        return (_product(signature, *out),)
    gradients = kind.partition("-")[2].partition("-")[0]
    wanted = {"x": of_input, "w": of_weight}
    return tuple(_product(signature, *wanted[letter]) for letter in gradients if letter in wanted)


def _fits_winograd(signature: Signature) -> bool:
    """Returns whether a convolution has 3 x 3 filters that move by one, without gaps."""
    first = 1 if "backward" in signature.name else 0
    weight = signature.tensor(first + 1)
    stride, _, dilation = (signature.value(first + at) for at in range(3, 6))
    return weight is not None and weight.sizes[2:] == (3, 3) and (stride, dilation) == ((1, 1), (1, 1))


def _product(signature: Signature, rows: int, deep: int, columns: int) -> Signature:
    dtype = signature.tensors[0].dtype
    left, right, out = (
        TensorSpec(dtype, sizes, contiguous_strides(sizes))
        for sizes in ((rows, deep), (deep, columns), (rows, columns))
    )
    return Signature("aten::mm", "", (left, right), (out,), signature.precision)


def with_bias(variant: str) -> bool:
    """Returns whether the calls of a variant (see `CallShape`) add a bias, or compute the gradient of one."""
    kind = variant.split()[1]
    return kind.endswith("bias" if kind.startswith("forward") else "b")


def adds_bias(kernels: Sequence[str]) -> bool:
    """Returns whether the last kernel of a forward with a bias adds the bias. cuDNN's convolutions leave this to torch;
    torch's own convolution of each channel alone adds it itself.

    Args:
        kernels: The names of its kernels, in order.
    """
    return "::elementwise_kernel" in kernels[-1]


def _turns(variant: str) -> bool:
    """Returns whether no tensor is channels last in the calls of a variant (see `CallShape`). For
    such calls, cuDNN transposes tensors before many of its kernels.
    """
    return "l" not in variant.split()[3]


def adapt(signature: Signature, shape: CallShape, found: Found, target: Target) -> Found:
    """Returns what a convolution launches and allocates: without transposing tensors if only the
    measured convolution has that. Temporary memory has copies of tensors, perhaps of another data
    type than was measured.
    """
    variant = shape.variants[0]
    asked, measured = map(_computed, (variant, found.variant))
    unwanted = [_COMPUTES[letter] for letter in "xw" if letter in measured and letter not in asked]
    if "backward" in variant and unwanted:
        kept = tuple(each for each in found.kernels if not any(kernels.search(each.name) for kernels in unwanted))
        found = found._replace(kernels=kept or found.kernels)
    if _turns(found.variant) and not _turns(variant):
        found = _without_turning(found, shape.dims)
    ratio = item_bytes(variant) / item_bytes(found.variant)
    return found._replace(temporaries=tuple(round(size * ratio) for size in found.temporaries))


def _without_turning(found: Found, dims: tuple[int, ...]) -> Found:
    """Returns what a call launches and allocates whose tensors are channels last (NHWC), given the
    same call with NCHW tensors. Kernels that transpose tensors are left out, and so is the memory
    for their results.

    Args:
        found: The call with NCHW tensors.
        dims: Its value on each axis of `FAMILY`.
    """
    kept = tuple(kernel for kernel in found.kernels if not _TURNS.search(kernel.name))
    if len(kept) == len(found.kernels):
        return found
    parts = tensors(found.variant, dims)
    left = (size - round(max(held for held in sums(parts) if held <= size)) for size in found.temporaries)
    return found._replace(kernels=kept, temporaries=tuple(size for size in left if size > 0))


def sums(parts: tuple[float, ...]) -> list[float]:
    """Returns the sum of each subset of `parts`, the empty one included."""
    return [sum(chosen) for count in range(len(parts) + 1) for chosen in combinations(parts, count)]


def _form(x: TensorSpec) -> int:
    """Returns how many sides filters have, but 1 for images, of which most was measured, and 2 for lines."""
    sides = len(x.sizes) - 2 if 1 not in x.sizes[2:] else 1
    return {2: 1, 1: 2}.get(sides, sides)


def _step(x: TensorSpec, out: TensorSpec) -> int:
    return max(1, round(math.sqrt(prod(x.sizes[2:]) / max(1, prod(out.sizes[2:])))))


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a convolution. `variant` and `dims` describe it (see `CallShape`);
    `FAMILY` has the axes of `dims`.
    """
    batch, channels, filters, area, out_area, taps, groups, _ = dims
    flops = 2.0 * batch * filters * out_area * taps * channels / groups
    moved = (batch * (channels * area + filters * out_area) + filters * channels * taps / groups) * item_bytes(variant)
    if "backward" in variant:
        gradients = variant.split()[1].split("-")[1]
        passes = max(1, ("x" in gradients) + ("w" in gradients))
        return Work(flops * passes, moved * passes)
    return Work(flops, moved)


def tensors(variant: str, dims: tuple[int, ...]) -> tuple[float, ...]:
    """Returns the bytes of the input, of the output and of the weight of a convolution. Their
    gradients have the same sizes. `variant` and `dims` describe the convolution (see `CallShape`);
    `FAMILY` has the axes of `dims`.
    """
    batch, channels, filters, area, out_area, taps, groups, _ = dims
    each = item_bytes(variant)
    return (
        float(each * batch * channels * area),
        float(each * batch * filters * out_area),
        float(each * filters * channels * taps // groups),
    )


def blocks(variant: str, dims: tuple[int, ...], kernel: str) -> int:
    """Returns the number of thread blocks of a kernel: one for each tile of the output, or of the
    tensor that the kernel transposes. A block of a depthwise convolution computes 1,024 results or gradients of its
    input. Returns 0 for other kernels: their number is unknown.

    Example: 64 filters with an output of 56 x 56 have 49 tiles, and cuDNN launches 49 blocks for
    them on an H100. A block that transposes has 32 x 32 elements: in traces of an H200, 768
    channels of 14 x 14 have 24 x 7 blocks.

    Args:
        variant: The variant of the convolution (see `CallShape`).
        dims: Its value on each axis of `FAMILY`.
        kernel: The name of the kernel.
    """
    batch, channels, filters, area, out_area = dims[:5]
    if _DEPTHWISE.search(kernel):
        results = area * channels if "backward" in kernel else out_area * filters
        return -(-batch * results // _RESULTS_OF_BLOCK)
    turns = _TURNS.search(kernel)
    if turns is None:
        return tiles(batch * out_area, filters, kernel) if tile_of(kernel) else 0
    high, wide = (area, channels) if turns[0] == "nchwToNhwc" else (out_area, filters)
    return batch * -(-high // _TURNED) * -(-wide // _TURNED)


FAMILY = Family(
    "convolution",
    (
        Axis("batch"),
        Axis("channels"),
        Axis("filters"),
        Axis("area"),
        Axis("out_area"),
        Axis("taps", 2.0),
        Axis("groups", 0.5),
        Axis("sides", 3.0),
    ),
    describe,
    work,
    temporaries,
    blocks,
    Choice(places, algorithm),
    adapt,
    frees_each=True,
    axis_of_blocks=0,
)
