"""Operators that gather, scatter, concatenate, pool or resize.

A call is described by the sizes of its input and its output, and by the length of a run: how many
adjacent elements one index selects. For some kinds of resizing, it is described by the number of
channels of all images, and by how many pixels a channel has; for others, and adaptive pools, a run is the number of
channels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod

from unstall.virtual.costs.families.family import (
    SECTOR,
    Axis,
    CallShape,
    Family,
    Found,
    Target,
    Work,
    alike,
    item_bytes,
    read_apart,
)
from unstall.virtual.costs.model import Kernel
from unstall.virtual.costs.signature import Signature, TensorSpec

_ONE_TILE = 2_304
"""How many pairs (a key as int64, and a value) fit into a tile of cub's radix sort: 256 threads
with nine pairs each.
"""
_WITHOUT_SORTING = 3_072
"""The largest number of indices for which one kernel computes the gradient of an embedding without
sorting the indices.
"""
_TILE_SHARE = 0.29
"""How long the kernel that sorts one tile takes, as a share of the kernels of a sort of many tiles: on
an H100, 14.0 us for 256 pairs and 15.5 for 2,048, of about 52 (benchmarks/results/embedding_bags_h100.json).
"""
_BLOCK_NS = 80.0
"""How long a multiprocessor takes for a row that a gather copies, however short the row is: each row has
a thread block of its own. An H100 takes 11.5 us for 16,384 rows of 32 bytes, and 97.8 us for 160,000 of 256.
"""
_VECTOR_BYTES = 16
"""Rows of a multiple of this size have such blocks. Other rows, called odd, are gathered, and joined, element by
element.
"""
_ACCUMULATES = "_index_put_impl_"
_MAXIMUM = 2
"""The mode of an embedding bag whose gradient needs no sorting."""
_SAME = {
    "embedding": "index_select",
    "_embedding_bag_backward": "embedding_dense_backward",
    "_index_put_impl_": "index_put_",
    "index_put": "index_put_",
    "index_copy_": "index_put_",
    "index_fill_": "index_put_",
    "put_": "index_put_",
    "index_reduce_": "index_add_",
    "scatter_reduce_": "scatter_add_",
}
"""By operator, another one that does the same to memory."""
_NAMED_AS_WRITES = ("index_copy_", "index_fill_")
"""Operators whose kernels are called as those of `index_put_`, but for their own name."""
_BY_ELEMENT = ("gather", "scatter")
"""How the names of operators begin that read an index for each element."""
_INDEX_BYTES = 8
_IMAGE_BY_IMAGE = (
    "upsample_linear1d",
    "upsample_linear1d_backward",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_bicubic2d_backward",
    "upsample_trilinear3d",
)
"""The operators whose threads each compute one pixel, of one channel of one image after the other.
Sources: torch's UpSampleLinear1d.cu, UpSampleBilinear2d.cu, UpSampleBicubic2d.cu, UpSampleTrilinear3d.cu.
"""
_ENDS_OF_PLANES = {
    "_adaptive_avg_pool2d": -2,
    "_adaptive_avg_pool2d_backward": -2,
    "upsample_nearest2d": -2,
    "upsample_nearest2d_backward": 1,
}
"""By operator that works plane by plane, where the dimensions of its tensor end whose product is the number of planes:
before the last two (all channels of all images), or after the first (the images).
"""
_THREADS = 1_024
"""How many threads, and so pixels, a thread block of these has."""
_ONLY_PARTS = (
    "index_select",
    "cat",
    "index",
    "gather",
    "take",
    "scatter_",
    "scatter_add_",
    "index_put_",
    "index_add_",
    "embedding_dense_backward",
)
"""The operators that do not read or write all of the table."""
_BY_ROW = ("index", "take", "index_put_", "index_add_")
"""The operators that read an index for each run of adjacent elements, and copy element by element."""
_ADDS = "_add_"
_ROWS_OF_PIXELS = {
    "upsample_nearest": 1,
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_bicubic2d": 4,
    "upsample_trilinear3d": 4,
}
"""By how the names of operators begin that resize: from how many rows of its input each pixel is computed."""
NAMES = (
    "index_select",
    "embedding",
    "embedding_dense_backward",
    "_embedding_bag_backward",
    "index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "index_copy_",
    "index_fill_",
    "put_",
    "gather",
    "take",
    "scatter",
    "scatter_",
    "scatter_add",
    "scatter_add_",
    "scatter_reduce_",
    "cat",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool2d_backward",
    *_IMAGE_BY_IMAGE,
    "upsample_nearest2d",
    "upsample_bilinear2d_backward",
    "upsample_nearest2d_backward",
    "roll",
    "index_add_",
    "index_add",
    "index_reduce_",
    "nonzero",
    "masked_select",
)


def timed_as(signature: Signature) -> str:
    """Returns the name of the operator whose measured host time holds for a call. It is the
    operator of the call, except for an index_put that does not accumulate, and for gradients of
    embeddings that sort their indices.

    The host time of index_put was measured for calls that accumulate, which sort their indices and
    run a dozen operators, as those gradients do. Other calls do what `index` does on the host: make
    one iterator over the indices, and launch one kernel.
    """
    name = signature.name.removeprefix("aten::")
    if _SAME.get(name, name) == "embedding_dense_backward":
        shape = describe(signature)
        return _ACCUMULATES if shape and shape.variants[0].endswith(" sorted") else "embedding_dense_backward"
    return "index" if _SAME.get(name, name) == "index_put_" and signature.value(3, False) is not True else name


def describe(signature: Signature) -> CallShape | None:
    """Describes a call of an operator of this family. Returns None for a call without tensors, and
    for the gradient of the largest elements of bags, which no measured call resembles.
    """
    name = signature.name.removeprefix("aten::")
    tensors, results = signature.tensors, signature.results
    in_bags = name == "_embedding_bag_backward"
    if not tensors or (in_bags and signature.value(8, 0) == _MAXIMUM):
        return None
    x, out = tensors[0], results[0] if results else tensors[0]
    kind = "index_select" if _gathers_rows(signature) else _SAME.get(name, name)
    count, run, table = 1, 1, x.numel
    pattern = ""
    if kind == "cat":
        joined = [tensor for tensor in tensors if tensor.numel]
        dim = next((value for value in signature.inputs[1:] if isinstance(value, int)), 0) % max(len(out.sizes), 1)
        count, run, table = len(joined), prod(out.sizes[dim:]), max((tensor.numel for tensor in joined), default=1)
        whole = all(prod(tensor.sizes[dim:]) * tensor.item_bytes % _VECTOR_BYTES == 0 for tensor in joined)
        pattern = " strided"
        if all(tensor.contiguous for tensor in joined):
            pattern = " contiguous" if whole else " odd"
    elif kind in ("index_select", "embedding_dense_backward"):
        index = next((tensor for tensor in tensors if tensor.dtype in ("int64", "int32")), tensors[-1])
        rows = out if kind == "index_select" else x
        count, run = index.numel, prod(rows.sizes[1:][-1:])  # torch.index_select takes tensors without dimensions, too
        if kind == "index_select" and name in ("index", "gather"):
            run = prod(x.sizes[1:])
            count = out.numel // max(run, 1)
        table = prod(x.sizes[:1]) if kind == "index_select" else signature.value(6 if in_bags else 2, 1)
        if kind == "index_select" and run * x.item_bytes % _VECTOR_BYTES:
            pattern = " odd"
        if kind == "embedding_dense_backward" and (in_bags or count > _WITHOUT_SORTING):
            pattern = " sorted"
    elif kind in ("index", "index_put_"):
        listed = signature.value(1)
        indices = listed if isinstance(listed, tuple) else tensors[1:2]
        count = max((each.numel for each in indices if isinstance(each, TensorSpec)), default=1)
        if name == "index_fill_" and x.sizes:
            pattern = " filled"
            out = replace(x, sizes=(count, x.numel // max(x.sizes[signature.value(1)], 1)), strides=(1, 1))
        elif kind == "index_put_":
            if signature.value(3, False) is True and name != "put_":
                pattern = " adding sorted" if count > _ONE_TILE else " adding"
            out = tensors[-1]
        run = max(1, out.numel // max(count, 1))
    elif kind in ("index_add", "index_add_") and len(tensors) > 2:
        count, out = tensors[1].numel, tensors[2]
        run = out.numel // max(count, 1)
    elif kind in ("nonzero", "masked_select") and len(x.sizes) > 1:
        pattern = " divided"  # a kernel divides the places among the dimensions
    elif kind == "take":
        count = out.numel
    elif kind in ("gather", "scatter", "scatter_", "scatter_add", "scatter_add_"):
        count = tensors[-1].numel if kind == "gather" else tensors[1].numel
        if kind.endswith("_"):  # it does not copy the table
            out = tensors[1]
        index = tensors[-1] if kind == "gather" else tensors[1]
        names_rows = any(size > 1 and not step for size, step in zip(index.sizes, index.strides, strict=True))
        pattern = " rows" if names_rows else ""
    elif kind.endswith("backward") and "pool" in kind and len(tensors) > 1:
        count = tensors[1].numel // max(1, x.numel)
    elif "pool" in kind or "upsample" in kind:
        count = max(x.numel, out.numel) // max(1, min(x.numel, out.numel))
        if kind in _IMAGE_BY_IMAGE:
            count, run = prod(out.sizes[:2]), prod((x if "backward" in kind else out).sizes[2:])
    if kind in _ENDS_OF_PLANES:
        run = prod(x.sizes[: _ENDS_OF_PLANES[kind]])
    if ("pool" in kind or "upsample" in kind) and x.channels_last:
        pattern = " nhwc"
    dims = (max(count, 1), max(run, 1), max(table, 1), max(out.numel, 1))
    variants = (
        *(f"{dtype} {kind}{pattern}" for dtype in alike(x.dtype)),
        *(f"{dtype} {kind}{other}" for dtype in alike(x.dtype) for other in (" adding", "", " sorted")),
        f"float32 {kind} contiguous",
        *(f"{dtype} {kind.rstrip('_')}" for dtype in alike(x.dtype)),
        *(f"{dtype} {kind.replace('_adaptive_', '')}{pattern}" for dtype in alike(x.dtype)),
    )
    return CallShape(tuple(dict.fromkeys(variants)), dims)


def _gathers_rows(signature: Signature) -> bool:
    """Returns whether an `index` or a `gather` names whole rows of a table, in the first dimension. If a row is a
    multiple of 16 bytes, torch runs the kernel of `index_select` (IndexKernel.cu, ScatterGatherKernel.cu).
    """
    table = signature.tensor(0)
    if table is None or len(table.sizes) < 2 or not table.contiguous:
        return False
    width = prod(table.sizes[1:])
    if width * table.item_bytes % _VECTOR_BYTES:
        return False
    match signature.name:
        case "aten::index":
            indices = signature.value(1, ())
            return len(indices) == 1 and isinstance(indices[0], TensorSpec) and indices[0].dtype in ("int64", "int32")
        case "aten::gather":
            index = signature.tensor(2)
            if index is None or signature.value(1) != 0 or index.sizes[1:] != table.sizes[1:]:
                return False
            return not any(index.strides[1:])
    return False


def of_blocks_ns(shape: CallShape, multiprocessors: int) -> float:
    """Returns how long the thread blocks of a gather of rows take, in ns, if they move hardly any bytes. Returns 0 for
    other calls.

    Args:
        shape: The shape of the call.
        multiprocessors: The number of multiprocessors of the GPU.
    """
    rows, run, _, _ = shape.dims
    variant = shape.variants[0]
    gathers = variant.endswith(" index_select") and run * item_bytes(variant) % _VECTOR_BYTES == 0
    return _BLOCK_NS * rows / multiprocessors if gathers else 0.0


def adapt(signature: Signature, shape: CallShape, found: Found, target: Target) -> Found:
    """Returns what a call launches and allocates. `_index_put_impl_` with `unsafe`, which autograd
    calls, does not check its indices. The gradient of bags sorts few pairs in one tile. What works
    in place does not copy its table first, as the same operator with a result of its own does.
    """
    if signature.name == "aten::_index_put_impl_" and signature.value(4, False) is True:
        return _without_checks(found)
    if signature.name == "aten::_embedding_bag_backward":
        return found._replace(kernels=sorted_in_one_tile(found.kernels, shape.dims[0]))
    name, measured = signature.name.removeprefix("aten::"), found.variant.split()[1]
    if name in _NAMED_AS_WRITES:
        kernels = (replace(each, name=each.name.replace("index_put", name[:-1])) for each in found.kernels)
        return found._replace(kernels=tuple(kernels))
    if name.rstrip("_") == measured != name:
        return found._replace(kernels=tuple(kernel for kernel in found.kernels if "DtoD" not in kernel.name))
    return found


def _without_checks(found: Found) -> Found:
    """Returns what a call launches and allocates without the checks of its indices. A check has
    three kernels and two allocations: the kernels find the extreme index, compare it, and assert
    the result.
    """
    asserts = [at for at, kernel in enumerate(found.kernels) if "_assert_async" in kernel.name]
    left_out = {place for at in asserts for place in (at - 2, at - 1, at)}
    kept = tuple(kernel for at, kernel in enumerate(found.kernels) if at not in left_out)
    return found._replace(kernels=kept, temporaries=found.temporaries[2 * len(asserts) :])


def sorted_in_one_tile(kernels: tuple[Kernel, ...], pairs: int) -> tuple[Kernel, ...]:
    """Returns the kernels of a call whose pairs fit into one tile. For more, cub's radix sort has
    kernels and memsets for each of its passes; one tile is sorted by one kernel. If the pairs fit
    into no tile, `kernels` is returned unchanged.

    Args:
        kernels: The kernels of a call that sorts many tiles.
        pairs: How many pairs are sorted.
    """
    sorting = [at for at, kernel in enumerate(kernels) if "RadixSort" in kernel.name]
    if pairs > _ONE_TILE or not sorting:
        return kernels
    tile = replace(
        kernels[sorting[0]],
        name="DeviceRadixSortSingleTileKernel",
        duration_ns=round(_TILE_SHARE * sum(kernels[at].duration_ns for at in sorting)),
    )
    before = tuple(kernel for kernel in kernels[: sorting[0]] if "Memset" not in kernel.name)
    return (*before, tile, *kernels[sorting[-1] + 1 :])


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a call. `variant` and `dims` describe it (see `CallShape`); `FAMILY` has
    the axes of `dims`.
    """
    count, run, table, out = dims
    name, item = variant.split()[1], item_bytes(variant)
    if name in _ONLY_PARTS:
        moved = float((_ADDS in name or name == "index_put_") + 2) * out * item
        moved += _INDEX_BYTES * count if name.startswith(_BY_ELEMENT) else 0
        if name in _BY_ROW or (name.startswith(_BY_ELEMENT) and not variant.endswith(" rows")):
            each = run * item
            written = name.endswith("_")
            return Work(0.0, moved, scattered=(1 + written) * count * (-each % SECTOR), table=table * item)
        return Work(0.0, moved)
    rows = next((rows for start, rows in _ROWS_OF_PIXELS.items() if name.startswith(start)), 0)
    if rows and "backward" not in name:
        table = read_apart(rows * out, item, table)
    moved = float((out + table) * item) + (_INDEX_BYTES * count if name.startswith(_BY_ELEMENT) else 0)
    return Work(0.0, moved, -(-run // _THREADS) if name in _IMAGE_BY_IMAGE else math.inf)


FAMILY = Family(
    "indexing",
    (Axis("count"), Axis("run", 0.5), Axis("table", 0.5), Axis("out")),
    describe,
    work,
    adapt=adapt,
    least_ns=of_blocks_ns,
)
