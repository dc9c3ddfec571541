"""Operators on rows: norms, softmax, losses, scans and sorting. A call is described by the number
of rows, their width, and the number of elements between two elements of a row.
"""

from __future__ import annotations

import math
import re
from math import prod

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Work, alike, item_bytes
from unstall.virtual.costs.families.row_launches import THREADS, WIDTH_OF_WARPS, geometry
from unstall.virtual.costs.signature import Signature

_PASSES = {
    "native_layer_norm": 2,
    "native_layer_norm_backward": 3,
    "_fused_rms_norm": 2,
    "_fused_rms_norm_backward": 3,
    "_softmax": 2,
    "_log_softmax": 2,
    "_softmax_backward_data": 3,
    "_log_softmax_backward_data": 3,
    "cudnn_batch_norm": 2,
    "cudnn_batch_norm_backward": 3,
    "native_batch_norm": 2,
    "native_batch_norm_backward": 3,
    "native_group_norm": 2,
    "native_group_norm_backward": 3,
    "nll_loss_backward": 1,
    "sort": 4,
    "topk": 1,
    "cumsum": 2,
    "argsort": 4,
}
_ONE_BLOCK = (
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm",
    "_fused_rms_norm",
)
"""The operators that process a row of more than `WIDTH_OF_WARPS` elements in one thread block:
torch's SoftMax.cu and layer_norm_kernel.cu.
"""
_GROUPS = 32
"""The number of groups of each measured group norm. A call with another number is described as one with
groups of the same size, as far as there are as many.
"""
_VECTOR = 4
"""How many elements of a row a thread of a layer or RMS norm reads at a time, if the width is a multiple of them."""
_WIDTH_OF_TWO_ROWS = 128
"""The largest width of a row at which a warp of torch's softmax processes two rows. A thread block has four warps."""
_BY_ROWS = re.compile(r"softmax_warp|cunn_SoftMax|layer_norm_kernel")
_SAME = {
    "_native_batch_norm_legit": "native_batch_norm",
    "_batch_norm_with_update": "native_batch_norm",
    "batch_norm_backward": "native_batch_norm_backward",
}
"""By operator, the one whose kernels it runs."""
NAMES = (*_PASSES, *_SAME, "nll_loss_forward", "cumprod", "logsumexp", "kthvalue", "cummax")


def describe(signature: Signature) -> CallShape | None:
    """Describes a call of an operator of this family. Returns None for a call without a tensor that has dimensions."""
    name = signature.name.removeprefix("aten::")
    x = next((tensor for tensor in signature.tensors if tensor.sizes), None)
    if x is None:
        return None
    kind = _SAME.get(name, name)
    inner = 1
    turned = ""
    if "batch_norm" in kind:
        rows, width, inner = x.sizes[0], x.sizes[1] if len(x.sizes) > 1 else 1, prod(x.sizes[2:])
        if not kind.endswith("backward"):
            flags = [value for value in signature.inputs if isinstance(value, bool)]
            kind += " training" if flags and flags[0] else " frozen"
        if x.channels_last or len(x.sizes) == 2:
            kind += " nhwc"
    elif "group_norm" in kind:
        groups = signature.value(8 if "backward" in kind else 6, _GROUPS)
        rows = max(x.sizes[0] * groups // _GROUPS, 1)  # a thread block processes a group
        width, inner = x.sizes[0] * x.sizes[1] // rows, prod(x.sizes[2:])
    elif "layer_norm" in kind or "rms_norm" in kind:
        normalized = signature.value(2 if "backward" in kind else 1, ())
        width = prod(normalized) if isinstance(normalized, tuple) and normalized else x.sizes[-1]
        rows = x.numel // max(width, 1)
        turned = "".join(
            "t" if not tensor.contiguous else "s" for tensor in signature.tensors[: 2 if "backward" in kind else 1]
        )
        if "t" in turned:
            kind += f" {turned}"
        elif width % _VECTOR:
            kind += " odd"
    elif "nll_loss" in kind:
        x = next((tensor for tensor in signature.tensors if len(tensor.sizes) == 2), x)
        rows, width = x.sizes[0] if len(x.sizes) > 1 else 1, x.sizes[-1]
    else:
        dim = next(
            (value for value in signature.inputs[1:] if isinstance(value, int) and not isinstance(value, bool)), -1
        )
        if name == "topk":
            dim = signature.value(2, -1)
        dim = dim % len(x.sizes) if isinstance(dim, int) else len(x.sizes) - 1
        rows, width, inner = prod(x.sizes[:dim]), x.sizes[dim], prod(x.sizes[dim + 1 :])
        kind += " across" if inner > 1 else ""
    plain = re.sub(r" (nhwc|across|odd|[st]+)$", "", kind)
    variants = [f"{dtype} {each}" for dtype in alike(x.dtype) for each in (kind, plain)]
    if kind.startswith("native_batch_norm"):
        variants += [f"{dtype} {plain.replace('native', 'cudnn')}" for dtype in alike(x.dtype)]
    return CallShape(tuple(dict.fromkeys(variants)), (max(rows, 1), max(width, 1), max(inner, 1)))


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a call.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: The number of rows, their width, and the number of elements between two elements of a
            row.
    """
    name = variant.split()[1]
    moved = prod(dims) * item_bytes(variant) * _PASSES.get(name, 1 if name != "nll_loss_forward" else 0.01)
    rows, width, inner = dims
    if "softmax" in name and inner > 1:
        return Work(0.0, float(moved), rows * -(-inner // THREADS))
    has_block = name in _ONE_BLOCK and inner == 1 and width > WIDTH_OF_WARPS
    return Work(0.0, float(moved), rows if has_block else math.inf)


def blocks(variant: str, dims: tuple[int, ...], kernel: str) -> int:
    """Returns the number of thread blocks of a kernel of a softmax or a layer norm. Returns 0 for
    other kernels: their number is unknown. Sources: torch's PersistentSoftmax.cuh, SoftMax.cu and
    layer_norm_kernel.cu.

    Args:
        variant: Not used.
        dims: The number of rows, their width, and the number of elements between two elements of a
            row.
        kernel: The name of the kernel.
    """
    rows, width, inner = dims
    if inner > 1 or not _BY_ROWS.search(kernel):
        return 0
    at_once = 1 if "softmax_warp" not in kernel else 8 if width <= _WIDTH_OF_TWO_ROWS else 4
    return -(-rows // at_once)


FAMILY = Family("rows", (Axis("rows"), Axis("width"), Axis("inner")), describe, work, blocks=blocks, geometry=geometry)
