"""Matrix products. cuBLAS chooses a kernel by the sizes and layouts of the matrices, and by the
alignment of their rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Work, item_bytes
from unstall.virtual.costs.occupancy import ADDS_PARTS, COMPUTES, at_once, tile_of
from unstall.virtual.costs.signature import Signature, TensorSpec

NAMES = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation", "mv", "addmv", "dot", "linear", "_int_mm")
CUBLAS = frozenset((*NAMES, "addbmm"))
"""The operators that need a cuBLAS handle."""
_ALIGNED_BYTES = 16
_IN_STEP = 2
"""How many thread blocks of a multiprocessor end at once."""
_TILE = 64
"""The side of a tile whose size no name tells."""


def describe(signature: Signature) -> CallShape | None:
    """Describes a call as a product of matrices: [batch, rows, deep] x [batch, deep, columns].
    Returns None if its arguments are not two matrices.
    """
    name = signature.name.removeprefix("aten::")
    tensors = signature.tensors
    if len(tensors) < 2:
        return None
    left, right = tensors[-2:] if name in ("addmm", "baddbmm", "addmv", "_addmm_activation") else tensors[:2]
    with_bias = name in ("addmm", "_addmm_activation") and len(tensors[0].sizes) == 1
    if name == "linear":
        right, with_bias = _transposed(right), len(tensors) > 2
        left = TensorSpec(left.dtype, (left.numel // max(left.sizes[-1], 1), left.sizes[-1]), (left.sizes[-1], 1))
    if len(right.sizes) == 1:
        right = TensorSpec(right.dtype, (*right.sizes, 1), (*right.strides, 1))
    if len(left.sizes) == 1:
        left = TensorSpec(left.dtype, (1, *left.sizes), (left.numel, *left.strides))
    if len(left.sizes) < 2 or len(right.sizes) < 2:
        return None
    batch = left.sizes[0] if len(left.sizes) == 3 else 1
    rows, deep, columns = left.sizes[-2], left.sizes[-1], right.sizes[-1]
    kind = "batched" if name in ("bmm", "baddbmm") else "bias" if with_bias else "plain"
    kind = "vector" if name == "mv" else "vectors" if name == "dot" else kind
    layouts = layout(left) + layout(right)
    unaligned = 0
    for tensor in (left, right, TensorSpec(left.dtype, (rows, columns), (columns, 1))):
        if max(tensor.strides[-2:]) * tensor.item_bytes % _ALIGNED_BYTES:
            unaligned += 1
    dims = (batch, rows, columns, deep, 1 << unaligned)
    usual = {"plain": "bias"}
    rounded = left.dtype == "float32" and signature.precision == "tf32"
    variants = (
        *((f"tf32 {kind} {layouts}", f"bfloat16 {kind} {layouts}") if rounded else ()),  # both on tensor cores
        f"{left.dtype} {kind} {layouts}",
        f"{left.dtype} {usual.get(kind, 'plain')} {layouts}",
        f"{left.dtype} {kind} nn",
        f"bfloat16 {kind} {layouts}" if left.item_bytes == 2 else f"float32 {kind} {layouts}",
        f"float32 {kind} nn",
        "float32 plain nn",
    )
    return CallShape(variants, dims)


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a matrix product.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: The size of its batch, its rows, columns and depth, and a figure for the alignment
            that is not used.
    """
    batch, rows, columns, deep, _ = dims
    moved = batch * (rows * deep + deep * columns + rows * columns) * item_bytes(variant)
    return Work(2.0 * batch * rows * columns * deep, float(moved))


def blocks(variant: str, dims: tuple[int, ...], kernel: str) -> int:
    """Returns the number of thread blocks of a kernel: one for each tile of the product (see
    `tiles`). A kernel that adds up parts of results has two for each tile (in traces of an H200).
    For that of cuBLASLt, and for one whose name tells no tile, returns 0: the number is unknown.

    Args:
        variant: Not used.
        dims: The size of the batch, the rows, columns and depth of the product, and a figure for
            the alignment. The last two are not used.
        kernel: The name of the kernel.
    """
    batch, rows, columns, _, _ = dims
    each = batch * tiles(columns, rows, kernel)
    if ADDS_PARTS.search(kernel):
        return 0 if "splitKreduce" in kernel else 2 * each
    return each if tile_of(kernel) else 0


def tiles(rows: int, columns: int, kernel: str) -> int:
    """Returns into how many tiles a matrix product divides its results. Each thread block computes
    a tile.

    The name of the kernel tells the size of a tile. If it does not, the size is taken to be 64 x
    64. In traces of an H200, a float32 product of 256 x 1,024 results with tiles of 64 x 64 has
    4 x 16 blocks for each part of a sum, and a bfloat16 one of 256 x 256 with tiles of 64 x 8 has
    4 x 32.

    Args:
        rows: The number of rows of results.
        columns: The number of columns of results.
        kernel: The name of the kernel.
    """
    high, wide = tile_of(kernel) or (_TILE, _TILE)
    return -(-rows // high) * -(-columns // wide)


def rounds(dims: tuple[int, ...], kernels: Sequence[str], multiprocessors: int) -> float | None:
    """Returns by which factor the arithmetic of a product takes longer as the multiprocessor with the most thread
    blocks takes longest, and as a block at the edge of the results computes a whole tile.

    A block of a float32 product without tensor cores keeps its multiprocessor busy (see `COMPUTES`). So the product
    takes as long as the blocks of one multiprocessor, one after the other. If two of them fit, they run in step: both
    end at once, and both places are taken by the next two. On an H200, a kernel with tiles of 128 x 128 takes 1.05
    times the arithmetic of a tile for up to 132 blocks, 2.0 for up to 264, 3.9 to 4.0 for up to 528, and 5.8 to 5.9
    for up to 792. Returns None for other kernels, and 1 if parts of results are added up: in how many parts, no name
    tells.

    Args:
        dims: The size of the batch, the rows, columns and depth of the product, and a figure for the alignment. The
            last two are not used.
        kernels: The names of the kernels.
        multiprocessors: The number of multiprocessors of the GPU.
    """
    if not any(map(COMPUTES.search, kernels)):
        return None
    tile = tile_of(kernels[0])
    if len(kernels) > 1 or tile is None:
        return 1.0
    batch, rows, columns, _, _ = dims
    high, wide = tile
    one_after_another = math.ceil(batch * tiles(columns, rows, kernels[0]) / multiprocessors)
    if one_after_another > 1 and at_once(kernels[0]) == _IN_STEP:
        one_after_another = math.ceil(one_after_another / _IN_STEP) * _IN_STEP
    return one_after_another * multiprocessors * high * wide / (batch * rows * columns)


def layout(tensor: TensorSpec) -> str:
    """Returns the layout of a matrix as a letter: "n" if its rows are contiguous, "t" if its
    columns are, and "s" if neither are. torch copies a matrix with the layout "s" before the
    product. One contiguous column is called "t": its memory is that of a row that was transposed.
    """
    rows, columns = tensor.sizes[-2:]
    row_step, column_step = tensor.strides[-2:]
    if columns == 1 and row_step == 1 and rows > 1:
        return "t"
    if column_step == 1 and row_step >= max(1, columns):
        return "n"
    if row_step == 1 and column_step >= max(1, rows):
        return "t"
    if column_step == 1 or columns == 1:
        return "n"
    return "s"


def _transposed(tensor: TensorSpec) -> TensorSpec:
    return TensorSpec(tensor.dtype, tensor.sizes[::-1], tensor.strides[::-1])


FAMILY = Family(
    "product",
    (Axis("batch"), Axis("rows"), Axis("columns"), Axis("deep"), Axis("alignment", 2.0)),
    describe,
    work,
    blocks=blocks,
    axis_of_blocks=1,
    rounds=rounds,
)
