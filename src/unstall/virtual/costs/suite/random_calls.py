"""Everyday operators with random sizes, in three data types: they tell how times vary between the sizes of the other
groups, of which many are powers of two.
"""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import torch

from unstall.virtual.costs.suite.case import Arguments, Build, Calls, Case, Make, TensorPool, spread
from unstall.virtual.costs.suite.norms import batch_backward, native_backward, native_batch

_EACH = 16
_MOST = 1 << 25  # elements
_DTYPES = torch.float32, torch.bfloat16, torch.float16
_UNARY = (
    *("relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "cos", "sin", "erf"),
    *("reciprocal", "hardswish", "hardsigmoid", "square", "sign", "floor", "log1p", "softplus", "mish", "leaky_relu"),
    *("elu", "isnan", "relu_", "zero_"),
)
_BINARY = "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "add_.Tensor", "mul_.Tensor"
_OF_GRADIENTS = "gelu_backward.default", "sigmoid_backward.default", "silu_backward.default", "tanh_backward.default"
_WITH_NUMBERS: tuple[tuple[str, int, Arguments], ...] = (
    *((f"{name}.Scalar", 1, (2.0,)) for name in ("add", "mul", "eq", "gt", "fill_")),
    *(("clamp_min.default", 1, (0,)), ("clamp.default", 1, (-1.0, 1.0)), ("pow.Tensor_Scalar", 1, (2,))),
    *(("addcmul.default", 3, ()), ("addcdiv_.default", 3, ()), ("lerp_.Scalar", 2, (0.1,)), ("gt.Tensor", 2, ())),
    *(("threshold_backward.default", 2, (0,)), ("native_dropout.default", 1, (0.1, True))),
)
_BY_ROWS = (
    "sum.dim_IntList",
    "mean.dim",
    "amax.default",
    "var.correction",
    "std.correction",
    "linalg_vector_norm.default",
)
_HOT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_OF_GRADIENTS, "threshold_backward.default"), (0,)),
    **dict.fromkeys(("_softmax_backward_data.default", "_log_softmax_backward_data.default"), (0,)),
    "copy_.default": (1,),
    "index_select.default": (),
}
"""By operator, which arguments the operator before has just written, if that is not for `measure` to choose."""
_Sizes: TypeAlias = Iterator[tuple[int, ...]]


def cases() -> Iterator[Case]:
    """Yields the cases."""
    groups: tuple[Callable[[torch.dtype], Calls], ...] = _flat, _broadcast, _turned, _rows, _images, _tables
    for rank, dtype in enumerate(_DTYPES, 1):
        for group in groups:
            for operator, build in group(dtype):
                yield Case(operator, build, rank, _HOT.get(operator))


def _sizes(
    what: str, dtype: torch.dtype, *ranges: tuple[int, int], most: int = _MOST, count: int = _EACH
) -> list[tuple[int, ...]]:
    """Returns random sizes (see `spread`) for an operator in a data type. Others get other sizes."""
    return spread(count, *ranges, most=most, seed=f"{what} {dtype}")


def _flat(dtype: torch.dtype) -> Calls:
    def tensors(count: int, size: int, rest: Arguments, pool: TensorPool) -> Arguments:
        return *(pool(size, dtype=dtype) for _ in range(count)), *rest

    calls = (
        *((f"{name}.default", 1, ()) for name in _UNARY),
        *((name, 2, ()) for name in (*_BINARY, *_OF_GRADIENTS)),
        *_WITH_NUMBERS,
    )
    for operator, count, rest in calls:
        for (size,) in _sizes(operator, dtype, (64, _MOST)):
            yield operator, partial(tensors, count, size, rest)
    for (size,) in _sizes("where", dtype, (64, _MOST)):
        mask: Build = lambda pool, n=size: (pool.bools(n), pool(n, dtype=dtype), pool(n, dtype=dtype))
        yield "where.self", mask
        yield "masked_fill.Scalar", lambda pool, n=size: (pool(n, dtype=dtype), pool.bools(n), 0.0)
    for other in _DTYPES:
        for (count,) in _sizes(f"copy {other}", dtype, (8, _MOST // 8)):
            yield "copy_.default", lambda pool, n=8 * count, to=other: (pool(n, dtype=to), pool(n, dtype=dtype))


def _broadcast(dtype: torch.dtype) -> Calls:
    for operator in ("add.Tensor", "mul.Tensor"):
        for rows, width in _sizes(operator, dtype, (4, 65_536), (16, 8_192)):
            for other in ((width,), (rows, 1)):
                yield operator, lambda pool, s=(rows, width), o=other: (pool(*s, dtype=dtype), pool(*o, dtype=dtype))


def _turned(dtype: torch.dtype) -> Calls:
    wide = _sizes("turn", dtype, (4, 65_536), (4, 65_536))
    for shape in (*wide, *_sizes("turn more", dtype, (64, 32_768), (64, 4_096))):
        yield "copy_.default", lambda pool, s=shape: (pool(*s, dtype=dtype), pool(*s[::-1], dtype=dtype).t())
    for shape in _sizes("add", dtype, (16, 16_384), (16, 16_384)):
        yield "add.Tensor", lambda pool, s=shape: (pool(*s, dtype=dtype), pool(*s[::-1], dtype=dtype).t())
    for n, high, width in _sizes("turn each", dtype, (2, 512), (4, 4_096), (4, 4_096)):
        matrices: Build = lambda pool, n=n, h=high, w=width: (pool(n, h, w, dtype=dtype), pool(n, w, h, dtype=dtype).mT)
        yield "copy_.default", matrices
    for n, one, other, width in _sizes("swap", dtype, (1, 64), (2, 2_048), (2, 64), (4, 256)):
        swapped: Build = lambda pool, to=(n, other, one, width), of=(n, one, other, width): (
            pool(*to, dtype=dtype),
            pool(*of, dtype=dtype).transpose(1, 2),
        )
        yield "copy_.default", swapped
    for rows, width, more in _sizes("slice", dtype, (4, 65_536), (4, 4_096), (2, 8)):
        yield (
            "copy_.default",
            lambda pool, r=rows, w=width, m=more: (pool(r, w, dtype=dtype), pool(r, m * w, dtype=dtype)[:, :w]),
        )


def _rows(dtype: torch.dtype) -> Calls:
    def sizes(what: str, widest: int = 16_384) -> _Sizes:
        """Yields random sizes of rows. Half of the widths are multiples of eight, as those of most programs."""
        draws = _sizes(what, dtype, (1, 65_536), (16, widest))
        return ((rows, width if at % 2 else -(-width // 8) * 8) for at, (rows, width) in enumerate(draws))

    for operator in _BY_ROWS:
        before: Arguments = (2,) if operator.startswith("linalg") else ()
        for shape in sizes(operator):
            yield operator, lambda pool, s=shape, b=before: (pool(*s, dtype=dtype), *b, [-1])
    for operator in ("argmax.default", "max.dim", "cumsum.default"):
        for shape in sizes(operator):
            yield operator, lambda pool, s=shape: (pool(*s, dtype=dtype), -1)
    for operator in (*_BY_ROWS, "nansum.default"):
        powers: Arguments = (2,) if operator.startswith("linalg") else ()
        for shape in sizes(f"columns {operator}"):
            yield operator, lambda pool, s=shape, b=powers: (pool(*s, dtype=dtype), *b, [0])
    for operator in ("prod.dim_int", "argmax.default", "max.dim"):
        for shape in sizes(f"columns {operator}"):
            yield operator, lambda pool, s=shape: (pool(*s, dtype=dtype), 0)
    for shape in sizes("sorted", 8_192):
        yield "sort.stable", lambda pool, s=shape: (pool(*s, dtype=dtype), {"stable": False, "dim": -1})
        yield "topk.default", lambda pool, s=shape: (pool(*s, dtype=dtype), min(8, s[1]), -1)
    for name in ("_softmax", "_log_softmax"):
        for shape in sizes(name):
            x: Make = lambda pool, s=shape: pool(*s, dtype=dtype)
            yield f"{name}.default", lambda pool, x=x: (x(pool), -1, False)
            yield f"{name}_backward_data.default", lambda pool, x=x: (x(pool), x(pool), -1, dtype)
    across = _sizes("across", dtype, (1, 256), (2, 32_768), (2, 8_192), count=2 * _EACH)
    for rows, width, inner in (*across, *_sizes("classes", dtype, (1, 64), (2, 512), (49, 65_536), count=2 * _EACH)):
        x = lambda pool, s=(rows, width, inner): pool(*s, dtype=dtype)
        for name in ("_softmax", "_log_softmax"):
            yield f"{name}.default", lambda pool, x=x: (x(pool), 1, False)
            yield f"{name}_backward_data.default", lambda pool, x=x: (x(pool), x(pool), 1, dtype)
        yield "cumsum.default", lambda pool, x=x: (x(pool), 1)
    for name, weights in (("native_layer_norm", 2), ("_fused_rms_norm", 1)):
        for shape in sizes(name, 8_192):
            norm: Build = lambda pool, s=shape, n=weights: (
                pool(*s, dtype=dtype),
                list(s[1:]),
                *(pool(s[1], dtype=dtype) for _ in range(n)),
                1e-5,
            )
            yield f"{name}.default", norm


def _images(dtype: torch.dtype) -> Calls:
    def sizes(what: str, channels_each: int = 8) -> _Sizes:
        for batch, channels, side in _sizes(what, dtype, (1, 64), (1, 128), (7, 128)):
            if batch * channels_each * channels * side * side <= _MOST:
                yield batch, channels_each * channels, side, side

    for shape in sizes("pool"):
        for kernel, stride, padding in ((2, 2, 0), (3, 2, 1)):
            how = [kernel, kernel], [stride, stride], [padding, padding]
            yield "avg_pool2d.default", lambda pool, s=shape, a=how: (pool(*s, dtype=dtype), *a)
            yield "max_pool2d_with_indices.default", lambda pool, s=shape, a=how: (pool(*s, dtype=dtype), *a)
    for shape in sizes("resize"):
        yield "upsample_nearest2d.default", lambda pool, s=shape: (pool(*s, dtype=dtype), [2 * s[2], 2 * s[3]])
        yield "flip.default", lambda pool, s=shape: (pool(*s, dtype=dtype), [-1])
        yield "flip.default", lambda pool, s=shape: (pool(*s, dtype=dtype), [-2])
    library = "native" if dtype == torch.bfloat16 else "cudnn"  # as torch chooses
    for shape in sizes("batch norm"):
        for last in (False, True):
            for training in (False, True):
                normed: Build = partial(native_batch, shape, dtype, last, training)
                yield f"{library}_batch_norm.default", normed
            backward = native_backward if library == "native" else batch_backward
            yield f"{library}_batch_norm_backward.default", partial(backward, shape, dtype, last)
    for groups in (8, 32):
        for shape in sizes(f"norm {groups}", groups):
            normed = lambda pool, s=shape, g=groups: (
                *(pool(*s, dtype=dtype), pool(s[1], dtype=dtype), pool(s[1], dtype=dtype)),
                *(*s[:2], s[2] * s[3], g, 1e-5),
            )
            yield "native_group_norm.default", normed
    for kernel in (3, 5):
        for stride in (1, 2):
            for shape in sizes(f"depthwise {kernel} {stride}"):
                each = [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], shape[1]
                depthwise: Build = lambda pool, s=shape, k=kernel, a=each: (
                    *(pool(*s, dtype=dtype), pool(s[1], 1, k, k, dtype=dtype), None),
                    *a,
                )
                yield "convolution.default", depthwise


def _tables(dtype: torch.dtype) -> Calls:
    def sizes(what: str, *ranges: tuple[int, int]) -> _Sizes:
        """Yields random numbers of rows, widths, and how many are chosen. Half of the widths are multiples of eight."""
        for at, (rows, width, count) in enumerate(_sizes(what, dtype, *ranges, most=1 << 62, count=4 * _EACH)):
            if max(rows, count) * width <= _MOST:
                yield rows, width if at % 2 else -(-width // 8) * 8, count

    for rows, width, count in sizes("rows", (64, 65_536), (16, 2_048), (16, 32_768)):
        table: Make = lambda pool, r=rows, w=width: pool(r, w, dtype=dtype)
        at: Make = lambda pool, r=rows, n=count: pool.integers(r, n)
        added: Build = lambda pool, t=table, i=at, s=(count, width): (t(pool), 0, i(pool), pool(*s, dtype=dtype))
        yield "index_select.default", lambda pool, t=table, i=at: (t(pool), 0, i(pool))
        yield "index.Tensor", lambda pool, t=table, i=at: (t(pool), [i(pool)])
        yield "index_add_.default", added
        yield "index_copy_.default", added
    for rows, width, count in sizes("elements", (4, 4_096), (16, 4_096), (1, 2_048)):
        if rows * max(width, count) <= _MOST:
            table = lambda pool, r=rows, w=width: pool(r, w, dtype=dtype)
            at = lambda pool, s=(rows, count), w=width: pool.integers(w, *s)
            scattered: Build = lambda pool, t=table, i=at, s=(rows, count): (t(pool), 1, i(pool), pool(*s, dtype=dtype))
            yield "gather.default", lambda pool, t=table, i=at: (t(pool), 1, i(pool))
            yield "scatter_add_.default", scattered
    for rows, width, other in sizes("join", (4, 32_768), (8, 4_096), (8, 4_096)):
        if rows * (width + other) <= _MOST:
            joined = rows, width, -(-other // 8) * 8
            yield "cat.default", partial(_joined, joined, dtype, -1)
            yield "cat.default", partial(_joined, joined, dtype, 0)


def _joined(sizes: tuple[int, ...], dtype: torch.dtype, dim: int, pool: TensorPool) -> Arguments:
    rows, *widths = sizes
    return [pool(*((rows, width) if dim else (width, rows)), dtype=dtype) for width in widths], dim
