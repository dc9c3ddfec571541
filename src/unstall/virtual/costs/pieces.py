"""Splits calls of operators that CUDA runs in several pieces. The cost of each piece is predicted
by itself.

Within an operator, torch's CUDA code converts and copies arguments that its kernels cannot take. It
does not go through the dispatcher for that, so the shim's log does not have it. The pieces follow
ATen's sources: `make_reduction`, `impl_func_cum_ops`, `prepare_matrix_for_cublas`, `host_softmax`,
`embedding_dense_backward_cuda`, `computeLinearIndex`, NLLLoss2d.cu,
UpSampleBilinear2d.cu, AdaptiveAveragePooling.cu, Im2Col.cu, TensorTransformations.cu,
BatchLinearAlgebra.cpp, Loss.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from unstall.virtual.costs.convolution import convolved
from unstall.virtual.costs.families.products import layout
from unstall.virtual.costs.piece import Piece, copied, laid_out
from unstall.virtual.costs.recurrent import NAMES as RECURRENT
from unstall.virtual.costs.recurrent import recurrent
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

_ACCUMULATE = ("sum", "nansum", "prod", "cumsum", "cumprod")
_HALF = ("float16", "bfloat16")
_AT_ONCE = 32
"""Up to which order cuSOLVER decomposes all matrices of a batch at once."""
_ROWS_AT_ONCE = 256
"""Up to how many rows cuBLAS factors all matrices of a batch at once."""
_MOST_IN_TURN = 1_000
"""Of how many matrices each is simulated. More would take the simulation too long."""
_OF_PAIRS = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
_NESTED_NS = 2_300
"""How long the host works on an operator that another one calls, besides the launch (an H200's host, `HostCosts`)."""
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation")


def pieces(signature: Signature) -> tuple[Piece, ...]:
    """Returns the calls that CUDA runs for a call, in order. For most calls, this is only the call itself."""
    split = _SPLIT.get(signature.name)
    return split(signature) if split else (Piece(signature),)


def _in_the_results_type(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a sum, a product or a scan. If the result has another data type than
    the input, the whole input is converted first. One case needs no conversion: a sum or product of
    half-precision values in float32. A scan (`cumsum`, `cumprod`) does need it there.
    """
    x, name = signature.tensor(0), signature.name.removeprefix("aten::")
    out = signature.results[0] if signature.results else None
    if x is None or out is None or x.dtype == out.dtype:
        return (Piece(signature),)
    if x.dtype in _HALF and out.dtype == "float32" and not name.startswith("cum"):
        return (Piece(signature),)
    strides = x.strides if x.dense else contiguous_strides(x.sizes)
    return copied(signature, {0: TensorSpec(out.dtype, x.sizes, strides)})


def _side_by_side(*positions: int) -> Callable[[Signature], tuple[Piece, ...]]:
    """Returns a function that returns the pieces of a call whose kernels take only contiguous
    arguments: copies of the arguments at `positions` that are not contiguous, and then the call on
    these copies.
    """

    def split(signature: Signature) -> tuple[Piece, ...]:
        laid = {}
        for position in positions:
            x = signature.tensor(position)
            if x is not None and not x.contiguous:
                laid[position] = laid_out(x)
        return copied(signature, laid)

    return split


def _products(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a matrix product: a copy of each factor of which neither rows nor
    columns are contiguous, and then the product.
    """
    factors = [(position, x) for position, x in enumerate(signature.inputs) if isinstance(x, TensorSpec)][-2:]
    laid = {position: laid_out(x) for position, x in factors if len(x.sizes) >= 2 and layout(x) == "s"}
    return copied(signature, laid)


def _in_place(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a matrix product that is added to its first argument."""
    return _products(replace(signature, name=signature.name.removesuffix("_")))


def _added_up(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a sum of products: one product after the other is added to the result (see ATen's
    `addbmm_impl`).
    """
    left, right = signature.tensor(1), signature.tensor(2)
    if left is None or right is None or not 0 < left.sizes[0] <= _MOST_IN_TURN:
        return (Piece(signature),)
    first, second = (replace(each, sizes=each.sizes[1:], strides=each.strides[1:]) for each in (left, right))
    result = signature.results[0]
    one = replace(signature, name="aten::addmm", inputs=(result, first, second), outputs=(result,))
    return _products(one) * left.sizes[0]


def _of_a_vector(signature: Signature) -> tuple[Piece, ...]:
    """Returns the product of a matrix and a vector without what is added to it."""
    matrix, vector = signature.tensor(1), signature.tensor(2)
    if matrix is None or vector is None:
        return (Piece(signature),)
    return (Piece(Signature("aten::mv", "", (matrix, vector), signature.outputs)),)


def _compared(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of `isin`. If few values are looked for, each element is compared with each of them; otherwise
    all are sorted (see ATen's TensorCompare.cpp and cuda/TensorCompare.cpp).
    """
    x, wanted = signature.tensor(0), signature.tensor(1)
    if x is None or wanted is None or not signature.results or wanted.numel >= int(10 * max(x.numel, 1) ** 0.145):
        return (Piece(signature),)
    found = signature.results[0]
    pairs = TensorSpec("bool", (*x.sizes, wanted.numel), contiguous_strides((*x.sizes, wanted.numel)))
    left = replace(x, sizes=(*x.sizes, 1), strides=(*x.strides, 1))
    right = replace(wanted, sizes=(*(1,) * len(x.sizes), wanted.numel), strides=(*(wanted.numel,) * len(x.sizes), 1))
    return (
        Piece(Signature("aten::fill_", "Scalar", (found, False), (found,))),
        Piece(Signature("aten::eq", "Tensor", (left, right), (pairs,)), (pairs.numel,)),
        Piece(Signature("aten::any", "dim", (pairs, -1, False), (found,))),
        Piece(Signature("aten::copy_", "", (found, found, False), (found,))),
    )


def _reduced(position: int) -> Callable[[Signature], tuple[Piece, ...]]:
    """Returns a function that returns the pieces of an element-wise loss: the losses of all
    elements, and then their mean or sum. `position` is that of the argument `reduction`.
    """

    def split(signature: Signature) -> tuple[Piece, ...]:
        x, reduction = signature.tensor(0), signature.value(position, 1)
        if x is None or reduction == 0 or not signature.results:
            return (Piece(signature),)
        each = TensorSpec(x.dtype, x.sizes, contiguous_strides(x.sizes))
        name = "mean" if reduction == 1 else "sum"
        over = Signature(f"aten::{name}", "dim", (each, (), False, None), signature.results)
        return (Piece(replace(signature, outputs=(each,)), (each.numel * each.item_bytes,)), Piece(over))

    return split


def _if_uneven(split: Callable[[Signature], tuple[Piece, ...]]) -> Callable[[Signature], tuple[Piece, ...]]:
    """Returns a function that splits a call as `split` does if an argument is expanded, or if not all
    have the same layout, and else leaves it as one piece. Only the latter were measured as a whole.
    """

    def split_uneven(signature: Signature) -> tuple[Piece, ...]:
        layouts = {each.strides for each in signature.tensors}
        return split(signature) if len(layouts) > 1 or any(0 in each for each in layouts) else (Piece(signature),)

    return split_uneven


def _shared_heads(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of the backward of flash attention. If several heads of queries share a
    head of keys and values, the gradients of keys and values are computed for each head of queries,
    and then summed.
    """
    query, shared = signature.tensor(1), [signature.tensor(2), signature.tensor(3)]
    if query is None or any(x is None or len(x.sizes) != 4 or x.sizes[1] >= query.sizes[1] for x in shared):
        return (Piece(signature),)
    sums, holds = [], []
    for x in shared:
        assert x is not None
        batch, heads, length, width = x.sizes
        sizes = (batch, length, heads, query.sizes[1] // heads, width)
        each = TensorSpec(x.dtype, sizes, contiguous_strides(sizes))
        holds.append(each.numel * each.item_bytes)
        sums.append(Piece(Signature("aten::sum", "dim_IntList", (each, (3,), False, None), (x,))))
    return (Piece(signature, tuple(holds)), *sums)


def _grouped(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a grouped matrix product: a product for each group. In bfloat16, it is
    one kernel that prepares the arguments, and one that computes all groups.

    The sizes of the groups are values of a tensor, which the shim's log does not have. So all
    groups are taken to have the same size.
    """
    left, right = signature.tensor(0), signature.tensor(1)
    if left is None or right is None or not signature.results:
        return (Piece(signature),)
    out = signature.results[0]
    groups = max((x.sizes[0] for x in (left, right, out) if len(x.sizes) == 3), default=1)
    if len(left.sizes) == len(right.sizes) == 3:
        return (Piece(Signature("aten::bmm", "", (left, right), (out,))),)
    rows, deep, columns = left.sizes[-2], left.sizes[-1], right.sizes[-1]
    at_once = left.dtype == "bfloat16"
    if not at_once:
        rows = max(rows // groups, 1) if len(left.sizes) == 2 and len(right.sizes) == 3 else rows
        columns = max(columns // groups, 1) if len(left.sizes) == 3 else columns
        deep = max(deep // groups, 1) if len(left.sizes) == len(right.sizes) == 2 else deep
    elif len(left.sizes) == 3:
        columns = max(columns // groups, 1)
    one = TensorSpec(left.dtype, (rows, deep), _slanted(left, rows, deep))
    other = TensorSpec(right.dtype, (deep, columns), _slanted(right, deep, columns))
    result = TensorSpec(out.dtype, (rows, columns), (columns, 1))
    product = Piece(Signature("aten::mm", "", (one, other), (result,)))
    if not at_once:
        return (product,) * groups
    few = TensorSpec("int64", (groups,), (1,))
    return (Piece(Signature("aten::prepare_grouped_gemm_data", "", (few,), (few,))), product)


def _slanted(like: TensorSpec, rows: int, columns: int) -> tuple[int, int]:
    """Returns the strides of a matrix of [rows, columns] whose rows are contiguous if those of
    `like` are, and else its columns.
    """
    return (columns, 1) if like.strides[-1] == 1 else (1, rows)


def _rolled(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a roll along several dimensions: a roll along each."""
    shifts, dims = signature.value(1, ()), signature.value(2, ())
    if not isinstance(dims, tuple) or len(dims) < 2 or len(shifts) != len(dims):
        return (Piece(signature),)
    x, out = signature.inputs[0], signature.results
    return tuple(
        Piece(Signature(signature.name, "", (x, (by,), (dim,)), out)) for by, dim in zip(shifts, dims, strict=True)
    )


def _of_each_image(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of an im2col: one for each image of the batch."""
    x, out = signature.tensor(0), signature.results[:1]
    if x is None or len(x.sizes) != 4 or not out or len(out[0].sizes) != 3:
        return (Piece(signature),)
    one, result = (replace(each, sizes=(1, *each.sizes[1:])) for each in (x, out[0]))
    piece = Piece(replace(signature, inputs=(one, *signature.inputs[1:]), outputs=(result,)))
    return (piece,) * x.sizes[0]


def _in_turn(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a search for eigenvalues or singular values: one for each matrix, if
    cuSOLVER decomposes one after the other. On an H200, 907 matrices of 90 x 45 take 226,427
    kernels, as many for each as for one alone.
    """
    x = signature.tensor(0)
    if x is None or len(x.sizes) < 3 or max(x.sizes[-2:]) <= _AT_ONCE:
        return (Piece(signature),)
    several = len(x.sizes) - 2
    count = prod(x.sizes[:several])
    if not 1 < count <= _MOST_IN_TURN:
        return (Piece(signature),)
    one, *results = (
        replace(each, sizes=each.sizes[several:], strides=each.strides[several:]) for each in (x, *signature.results)
    )
    return (Piece(replace(signature, inputs=(one, *signature.inputs[1:]), outputs=tuple(results))),) * count


def _factored(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a QR decomposition of many matrices: cuBLAS factors all at once, and then cuSOLVER computes
    the orthogonal factor of each in turn. torch does so if the matrices are small and many enough (`geqrf_kernel` of
    BatchLinearAlgebra.cpp). On an H200, 250 matrices of 3 x 3 take 2,256 kernels, of which 9 are for each.
    """
    x = signature.tensor(0)
    if x is None or len(x.sizes) < 3 or len(signature.results) != 2:
        return (Piece(signature),)
    several, rows = len(x.sizes) - 2, x.sizes[-2]
    count = prod(x.sizes[:several])
    if rows > _ROWS_AT_ONCE or count < max(2, rows // 16) or signature.value(1, "reduced") == "r":
        return (Piece(signature),)
    one, out = (
        replace(each, sizes=each.sizes[several:], strides=each.strides[several:]) for each in (x, signature.results[0])
    )
    each = Piece(Signature("aten::linalg_householder_product", "", (one,), (out,)))
    return (Piece(Signature("aten::geqrf", "", (x,), (x,))), *(each,) * min(count, _MOST_IN_TURN))


def _placed(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of an index_put that accumulates. With several tensors of indices, torch
    first makes one tensor of offsets in memory: it makes negative indices positive, multiplies each
    tensor by the stride of its dimension, and adds them up.
    """
    if signature.value(3, False) is not True:
        return (Piece(signature),)
    given = signature.value(1, ())
    indices = [index for index in given if isinstance(index, TensorSpec)] if isinstance(given, tuple) else []
    if len(indices) < 2:
        return (Piece(signature),)
    more: list[Piece] = []
    for index in indices[1:]:
        places = TensorSpec("int64", index.sizes, contiguous_strides(index.sizes))
        if signature.value(4, False) is not True:
            more.extend(map(Piece, _checked(places)))
        more.append(Piece(Signature("aten::remainder", "Scalar", (places, 1), (places,)), (8 * places.numel,)))
        more.append(Piece(Signature("aten::mul", "Scalar", (places, 1), (places,)), (8 * places.numel,)))
        more.append(Piece(Signature("aten::add_", "Tensor", (places, places, 1), (places,))))
    first = replace(signature, inputs=(signature.inputs[0], (indices[0],), *signature.inputs[2:]))
    return (*more, Piece(first))


def _one_by_one(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces of a call on two lists of tensors: an element-wise call for each pair if the tensors of a pair
    differ in size, since torch's kernels of lists take only pairs of the same size (ForeachUtils.h).
    """
    one, other = signature.inputs[:2]
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return (Piece(signature),)
    pairs = [
        (a, b) for a, b in zip(one, other, strict=False) if isinstance(a, TensorSpec) and isinstance(b, TensorSpec)
    ]
    if all(a.sizes == b.sizes for a, b in pairs):
        return (Piece(signature),)
    name = signature.name.replace("_foreach_", "")
    return tuple(Piece(Signature(name, "Tensor", pair, pair[:1]), host_ns=_NESTED_NS) for pair in pairs)


def _checked(index: TensorSpec) -> list[Signature]:
    """Returns the calls that assert on the device that all values of `index` are within their dimension."""
    one, whether = TensorSpec("int64", (), ()), TensorSpec("bool", (), ())
    found = []
    for extreme, compare in (("max", "lt"), ("min", "ge")):
        found.append(Signature(f"aten::{extreme}", "", (index,), (one,)))
        found.append(Signature(f"aten::{compare}", "Scalar", (one, 1), (whether,)))
        found.append(Signature("aten::_assert_async", "", (whether,), (whether,)))
    return found


_SPLIT: dict[str, Callable[[Signature], tuple[Piece, ...]]] = {
    **{f"aten::{name}": _in_the_results_type for name in _ACCUMULATE},
    **{f"aten::{name}": _products for name in _PRODUCTS},
    **{f"aten::{name}_": _in_place for name in ("addmm", "baddbmm")},
    "aten::isin": _compared,
    "aten::addbmm": _added_up,
    "aten::addbmm_": _added_up,
    "aten::addmv": _of_a_vector,
    "aten::addmv_": _of_a_vector,
    "aten::_softmax": _side_by_side(0),
    "aten::_log_softmax": _side_by_side(0),
    "aten::_softmax_backward_data": _side_by_side(0, 1),
    "aten::_log_softmax_backward_data": _side_by_side(0, 1),
    "aten::embedding_dense_backward": _side_by_side(0, 1),
    "aten::convolution": convolved(0),
    "aten::convolution_backward": convolved(0, 1),
    **{
        f"aten::{name}_backward": _side_by_side(0)
        for name in (
            "upsample_linear1d",
            "upsample_bilinear2d",
            "upsample_bicubic2d",
            "upsample_trilinear3d",
            "reflection_pad1d",
            "reflection_pad2d",
            "replication_pad2d",
            "_adaptive_avg_pool2d",
        )
    },
    "aten::_scaled_dot_product_flash_attention_backward": _shared_heads,
    "aten::_grouped_mm": _grouped,
    "aten::nll_loss2d_forward": _side_by_side(0, 1),
    "aten::nll_loss2d_backward": _side_by_side(2),
    "aten::mse_loss": _if_uneven(_reduced(2)),
    "aten::smooth_l1_loss": _reduced(2),
    "aten::huber_loss": _reduced(2),
    "aten::binary_cross_entropy": _reduced(3),
    **dict.fromkeys(RECURRENT, recurrent),
    "aten::_linalg_eigh": _in_turn,
    "aten::_linalg_svd": _in_turn,
    "aten::linalg_qr": _factored,
    "aten::roll": _rolled,
    "aten::im2col": _of_each_image,
    "aten::_index_put_impl_": _placed,
    **{f"aten::_foreach_{name}{end}": _one_by_one for name in _OF_PAIRS for end in ("", "_")},
    "aten::index_put_": _placed,
}
