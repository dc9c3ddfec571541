"""Cases of element-wise operators on contiguous, broadcast and transposed tensors; also casts,
copies and random numbers.
"""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from unstall.virtual.costs.suite.case import Arguments, Build, Case, TensorPool

_UNARY = (
    "relu",
    "relu_",
    "gelu",
    "silu",
    "silu_",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "cos",
    "sin",
    "erf",
    "reciprocal",
    "hardswish",
    "hardswish_",
    "hardsigmoid",
    "hardsigmoid_",
    "logical_not",
    "bitwise_not",
    "isnan",
    "isfinite",
    "zero_",
    "square",
    "sign",
    "floor",
    "round",
    "log1p",
    "softplus",
    "mish",
    "leaky_relu",
    "elu",
    "hardtanh",
)
_SIZES = tuple(1 << power for power in range(8, 28, 2))
_FINE = tuple(size for power in range(8, 28) for size in ((1 << power), 3 << (power - 1)))
_BOTH = ("add", "sub", "mul", "div", "maximum", "minimum", "add_", "mul_", "sub_", "div_")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or")


def cases() -> Iterator[Case]:
    """Yields the cases of element-wise operators."""
    for dtype, rank in ((torch.float32, 0), (torch.bfloat16, 1), (torch.float16, 3)):
        yield from _by_size(dtype, rank)
        yield from _broadcast(dtype, rank)
        yield from (replace(case, hot=(1,)) for case in _copies(dtype, rank))
        yield from _random(dtype, rank)
    yield from _whole_numbers()


def _by_size(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    def tensors(count: int, *rest: object, size: int) -> Build:
        return lambda pool: (*(pool(size, dtype=dtype) for _ in range(count)), *rest)

    for size in _FINE:
        main = rank + (size not in _SIZES)
        make = partial(tensors, size=size)
        yield Case("add.Tensor", make(2), main)
        yield Case("mul.Tensor", make(2), main)
        yield Case("add_.Tensor", make(2), main)
        yield Case("gelu.default", make(1), main)
        yield Case("relu.default", make(1), main)
        yield Case("clamp_min.default", make(1, 0), main)
        yield Case("gelu_backward.default", make(2), main, hot=(0,))
        yield Case("threshold_backward.default", make(2, 0), main, hot=(0,))
        yield Case("fill_.Scalar", make(1, 1.0), main)
        yield Case("mul.Scalar", make(1, 2.0), main + 1)
        yield Case("native_dropout.default", make(1, 0.1, True), main)
        yield Case("native_dropout_backward.default", partial(_dropout_backward, size, dtype), main)
    for size in _SIZES:
        make = partial(tensors, size=size)
        for name in _UNARY:
            if name in ("bitwise_not",):
                continue
            yield Case(f"{name}.default", make(1), rank + 1)
        for name in (*_BOTH, *_COMPARE[:6]):
            if name in ("maximum", "minimum"):
                yield Case(f"{name}.default", make(2), rank + 1)
            else:
                yield Case(f"{name}.Tensor", make(2), rank + 1)
                yield Case(f"{name}.Scalar", make(1, 2.0), rank + 1)
        for name in (
            "sigmoid_backward",
            "tanh_backward",
            "silu_backward",
            "hardsigmoid_backward",
            "hardswish_backward",
        ):
            yield Case(f"{name}.default", make(2), rank + 1, hot=(0,))
        yield Case("hardtanh_backward.default", make(2, 0.0, 6.0), rank + 1, hot=(0,))
        yield Case("hardtanh.default", make(1, 0.0, 6.0), rank + 1)
        yield Case("hardtanh_.default", make(1, 0.0, 6.0), rank + 1)
        yield Case("clamp.default", make(1, -1.0, 1.0), rank + 1)
        yield Case("pow.Tensor_Scalar", make(1, 2), rank + 1)
        yield Case("pow.Tensor_Scalar", make(1, 3.0), rank + 1)
        yield Case("rsub.Scalar", make(1, 1.0), rank + 1)
        yield Case("addcmul.default", make(3), rank + 2)
        yield Case("addcdiv.default", make(3), rank + 2)
        yield Case("addcdiv_.default", make(3), rank + 2)
        yield Case("addcmul_.default", make(3), rank + 2)
        yield Case("lerp_.Scalar", make(2, 0.1), rank + 2)
        yield Case("where.self", partial(_where, size, dtype), rank + 1)
        yield Case("masked_fill.Scalar", partial(_masked, size, dtype), rank + 1)
        yield Case("masked_fill_.Scalar", partial(_masked, size, dtype), rank + 1)
        yield Case("glu.default", make(1, -1), rank + 2)


def _dropout_backward(size: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(size, dtype=dtype), pool.bools(size), 1.1


def _where(size: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool.bools(size), pool(size, dtype=dtype), pool(size, dtype=dtype)


def _masked(size: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(size, dtype=dtype), pool.bools(size), 0.0


def _broadcast(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    names = ("add.Tensor", "mul.Tensor", "div.Tensor", "sub.Tensor", "add_.Tensor", "mul_.Tensor")
    for rows in (1, 8, 64, 128, 512, 2048, 8192, 32768, 131072):
        for width in (64, 192, 384, 768, 2048, 4096):
            if rows * width > 1 << 27:
                continue
            for name in names:
                level = rank + (name not in names[:2]) + (width in (64, 384, 4096))
                for other in ((width,), (rows, 1)):
                    build: Build = lambda pool, o=other, r=rows, w=width: (
                        pool(r, w, dtype=dtype),
                        pool(*o, dtype=dtype),
                    )
                    yield Case(name, build, level)
    for batch in (1, 8, 32):
        for channels, side in ((64, 56), (96, 56), (256, 28), (192, 28), (384, 14), (512, 14), (768, 7), (2048, 7)):
            for name in names:
                for beside in ((channels, 1, 1), (batch, channels, 1, 1), (batch, 1, 1, 1), (1, channels, side, side)):
                    build = lambda pool, o=beside, s=(batch, channels, side, side): (
                        pool(*s, dtype=dtype),
                        pool(*o, dtype=dtype),
                    )
                    yield Case(name, build, rank + (name not in names[:2]))
                permuted: Build = lambda pool, s=(batch, channels, side, side): (
                    pool(*s, dtype=dtype),
                    pool(s[0], s[2], s[3], s[1], dtype=dtype).permute(0, 3, 1, 2),
                )
                yield Case(name, permuted, rank + (name not in names[:1]))
                channel_bias: Build = lambda pool, s=(batch, side, side, channels): (
                    pool(*s, dtype=dtype).permute(0, 3, 1, 2),
                    pool(s[3], 1, 1, dtype=dtype),
                )
                yield Case(name, channel_bias, rank + (name not in names[:2]))
                both: Build = lambda pool, s=(batch, side, side, channels): (
                    pool(*s, dtype=dtype).permute(0, 3, 1, 2),
                    pool(*s, dtype=dtype).permute(0, 3, 1, 2),
                )
                yield Case(name, both, rank + 1)
    for batch, heads in ((1, 12), (8, 12), (32, 12), (8, 8)):
        for length in (16, 64, 128, 197, 512):
            for name in names[:2]:
                for mask in ((batch, 1, 1, length), (1, heads, length, length), (batch, 1, length, length)):
                    build = lambda pool, o=mask, s=(batch, heads, length, length): (
                        pool(*s, dtype=dtype),
                        pool(*o, dtype=dtype),
                    )
                    yield Case(name, build, rank + 1)


def _copies(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    for size in _FINE:
        level = rank + (size not in _SIZES)
        yield Case("copy_.default", lambda pool, s=size: (pool(s, dtype=dtype), pool(s, dtype=dtype)), level)
        yield Case("copy_.default", lambda pool, s=size: (pool(s, dtype=other), pool(s, dtype=dtype)), level + 1)
    for batch in (1, 8, 32):
        for heads, width in ((8, 64), (12, 64), (12, 32), (16, 64), (16, 128)):
            for length in (1, 16, 49, 64, 128, 197, 512, 1024):
                if batch * heads * length * width > 1 << 26:
                    continue
                level = rank + (batch == 32) + (heads == 16)
                build: Build = lambda pool, b=batch, h=heads, t=length, w=width: (
                    pool(b, t, h, w, dtype=dtype),
                    pool(b, h, t, w, dtype=dtype).transpose(1, 2),
                )
                yield Case("copy_.default", build, level)
                build = lambda pool, b=batch, h=heads, t=length, w=width: (
                    pool(b, h, w, t, dtype=dtype),
                    pool(b, t, h, w, dtype=dtype).permute(0, 2, 3, 1),
                )
                yield Case("copy_.default", build, level + 1)
        for channels, side in (
            (3, 224),
            (64, 56),
            (96, 56),
            (192, 28),
            (384, 14),
            (768, 7),
            (768, 14),
            (256, 28),
            (1024, 14),
        ):
            for to_last in (True, False):
                build = lambda pool, s=(batch, channels, side, side), last=to_last: _layouts(s, dtype, last, pool)
                yield Case("copy_.default", build, rank)
        for side, width in ((56, 96), (28, 192), (14, 384), (7, 768)):
            build = lambda pool, b=batch, n=side, w=width: _windows(b, n, w, dtype, pool)
            yield Case("copy_.default", build, rank + 1)
    for rows in (64, 512, 1024, 4096, 16384, 65536):
        for width in (64, 256, 768, 1024, 3072):
            if rows * width <= 1 << 26:
                yield Case(
                    "copy_.default",
                    lambda pool, r=rows, w=width: (pool(r, w, dtype=dtype), pool(w, r, dtype=dtype).t()),
                    rank,
                )
                build = lambda pool, r=rows, w=width: (pool(r, w, dtype=dtype), pool(r, 3 * w, dtype=dtype)[:, :w])
                yield Case("copy_.default", build, rank)
                build = lambda pool, r=rows, w=width: (pool(r, 3 * w, dtype=dtype)[:, :w], pool(r, w, dtype=dtype))
                yield Case("copy_.default", build, rank + 1)
                build = lambda pool, r=rows, w=width: (pool(r, w, dtype=dtype), pool(w, dtype=dtype).expand(r, w))
                yield Case("copy_.default", build, rank + 1)


def _layouts(shape: tuple[int, int, int, int], dtype: torch.dtype, to_last: bool, pool: TensorPool) -> Arguments:
    batch, channels, height, width = shape
    plain, last = pool(*shape, dtype=dtype), pool(batch, height, width, channels, dtype=dtype).permute(0, 3, 1, 2)
    return (last, plain) if to_last else (plain, last)


def _windows(batch: int, side: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    count = side // 7
    source = pool(batch, count, 7, count, 7, width, dtype=dtype).transpose(2, 3)
    return pool(batch, count, count, 7, 7, width, dtype=dtype), source


def _random(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    for size in _SIZES:
        make = lambda pool, s=size: (pool(s, dtype=dtype),)
        yield Case("bernoulli_.float", lambda pool, s=size: (pool(s, dtype=dtype), 0.9), rank + 1)
        yield Case("normal_.default", make, rank + 2)
        yield Case("uniform_.default", make, rank + 2)


def _whole_numbers() -> Iterator[Case]:
    for size in _SIZES[:-2]:
        ints = lambda pool, s=size: (pool.integers(9, s), pool.integers(9, s))
        one = lambda pool, s=size: (pool.integers(9, s), 3)
        flags = lambda pool, s=size: (pool.bools(s), pool.bools(s))
        for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"):
            yield Case(f"{name}.Tensor", ints, 1)
            yield Case(f"{name}.Scalar", one, 1)
        for name in ("bitwise_and", "bitwise_or"):
            yield Case(f"{name}.Tensor", flags, 1)
        yield Case("logical_not.default", lambda pool, s=size: (pool.bools(s),), 1)
        yield Case("bitwise_not.default", lambda pool, s=size: (pool.bools(s),), 1)
        yield Case("fill_.Scalar", one, 1)
        for to, of in (
            (torch.int64, torch.bool),
            (torch.float32, torch.int64),
            (torch.float32, torch.bool),
            (torch.bool, torch.int64),
        ):
            build: Build = lambda pool, s=size, t=to, o=of: (
                torch.empty(s, dtype=t, device=pool.device),
                pool.integers(2, s, dtype=o if o != torch.bool else torch.uint8).to(o),
            )
            yield Case("copy_.default", build, 1)
        yield Case("copy_.default", lambda pool, s=size: (pool.integers(9, s), pool.integers(9, s)), 1)
