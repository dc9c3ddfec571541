"""Cases of layer, batch, group and RMS norms, and of softmax, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import torch

from unstall.virtual.costs.suite.case import MAX_ELEMENTS, Arguments, Case, TensorPool, image_of

aten = torch.ops.aten
_ROWS = (
    1,
    8,
    16,
    32,
    64,
    128,
    197,
    256,
    512,
    1024,
    1576,
    2048,
    4096,
    6304,
    8192,
    12544,
    16384,
    25088,
    50176,
    65536,
    100352,
    401408,
)
_WIDTHS = (32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 4096)


def cases() -> Iterator[Case]:
    """Yields the cases of norms and softmax."""
    for dtype, rank in ((torch.float32, 0), (torch.bfloat16, 2)):
        for rows in _ROWS:
            for width in _WIDTHS:
                if rows * width <= MAX_ELEMENTS // 4:
                    for layouts in ("ss", "st", "ts", "tt"):
                        later = rank + (layouts != "ss" and rows * width < 1 << 16)
                        if layouts[0] == "s":
                            turned = partial(_layer, rows, width, dtype, layouts[1] == "t")
                            yield Case("native_layer_norm.default", turned, later)
                        build = partial(_layer_backward, rows, width, dtype, layouts)
                        yield Case("native_layer_norm_backward.default", build, later, hot=(0,))
                    yield Case("_fused_rms_norm.default", partial(_rms, rows, width, dtype), rank + 2)
                    build = partial(_rms_backward, rows, width, dtype)
                    yield Case("_fused_rms_norm_backward.default", build, 2, hot=(0,))
        for outer in (
            1,
            8,
            12,
            32,
            96,
            128,
            200,
            384,
            512,
            1024,
            1280,
            1576,
            2048,
            4096,
            6144,
            8192,
            12288,
            16384,
            50176,
            75648,
        ):
            for width in (
                2,
                10,
                49,
                64,
                128,
                197,
                256,
                512,
                1000,
                1024,
                2048,
                4096,
                21841,
                30522,
                32000,
                32128,
                50257,
                50265,
                51865,
            ):
                if outer * width <= MAX_ELEMENTS and (outer <= 16384 or width <= 1024):
                    level = rank + (width > 4096 and outer > 4096)
                    for name in ("softmax", "log_softmax"):
                        yield Case(f"_{name}.default", partial(_softmax, outer, width, dtype), level)
                        build = partial(_softmax_backward, outer, width, dtype)
                        yield Case(f"_{name}_backward_data.default", build, level, hot=(0,))
        for batch in (1, 8, 32):
            for channels in (
                16,
                24,
                32,
                48,
                64,
                96,
                128,
                144,
                192,
                256,
                320,
                384,
                512,
                576,
                768,
                960,
                1024,
                1280,
                2048,
            ):
                for side in (1, 7, 14, 28, 56, 112):
                    if dtype == torch.float32 and channels * side <= 16384 and (side > 1 or channels > 256):
                        shape = (batch, channels, side, side)
                        build = partial(native_batch, shape, dtype, False)
                        yield Case("cudnn_batch_norm.default", partial(build, False), rank)
                        if batch > 1:
                            level = rank + (batch == 32)
                            yield Case("cudnn_batch_norm.default", partial(build, True), level)
                            build = partial(batch_backward, shape, dtype, False)
                            yield Case("cudnn_batch_norm_backward.default", build, level, hot=(1,))
        for batch in (1, 8):
            for channels in (32, 64, 128, 256, 320, 512, 1280):
                for side in (8, 16, 32, 64):
                    yield Case("native_group_norm.default", partial(_group, batch, channels, side, dtype), rank + 2)
                    yield Case(
                        "native_group_norm_backward.default",
                        partial(_group_backward, batch, channels, side, dtype),
                        rank + 2,
                    )
    yield from _batches()


def _batches() -> Iterator[Case]:
    """Yields the cases of batch norms that torch does not leave to cuDNN (of rows, in bfloat16, and in half precision
    with weights as short), and of those that it does, with the channels last or in float16.
    """
    rows = [
        (count, width) for count in (32, 256, 2048, 4096, 16384, 100000) for width in (16, 64, 256, 512, 1024, 4096)
    ]
    images = [
        (batch, channels, side, side)
        for batch in (2, 8, 32, 128)
        for channels, side in (
            (16, 64),
            (32, 32),
            (64, 112),
            (64, 56),
            (128, 28),
            (256, 56),
            (256, 14),
            (512, 7),
            (2048, 7),
        )
    ]
    halves = (rows, torch.bfloat16), (images, torch.bfloat16), (images, torch.float16)
    for shapes, dtype in ((rows, torch.float32), *halves):
        for shape in shapes:
            if prod(shape) > 1 << 26:
                continue
            for last in (False, True)[: len(shape) - 1]:
                for training in (False, True):
                    build = partial(native_batch, shape, dtype, last, training)
                    yield Case("native_batch_norm.default", build, 2)
                yield Case(
                    "native_batch_norm_backward.default", partial(native_backward, shape, dtype, last), 2, hot=(0,)
                )
    for dtype, last in ((torch.float16, False), (torch.float16, True), (torch.float32, True)):
        for shape in images:
            if prod(shape) <= 1 << 26:
                for training in (False, True):
                    build = partial(native_batch, shape, dtype, last, training)
                    yield Case("cudnn_batch_norm.default", build, 2)
                yield Case(
                    "cudnn_batch_norm_backward.default", partial(batch_backward, shape, dtype, last), 2, hot=(1,)
                )


def native_batch(shape: tuple[int, ...], dtype: torch.dtype, last: bool, training: bool, pool: TensorPool) -> Arguments:
    """Returns the arguments of a batch norm. If `last`, the channels are the last in memory."""
    x, channels = image_of(dtype, last, shape, pool), shape[1]
    return x, pool(channels), pool(channels), pool.zeros(channels), pool.zeros(channels) + 1, training, 0.1, 1e-5


def native_backward(shape: tuple[int, ...], dtype: torch.dtype, last: bool, pool: TensorPool) -> Arguments:
    """Returns the arguments of the backward of torch's batch norm. If `last`, the channels are the last in memory."""
    x, weight, _, mean, var, *_ = native_batch(shape, dtype, last, True, pool)
    gradient, of_batch = image_of(dtype, last, shape, pool), (pool.zeros(shape[1]), pool.zeros(shape[1]) + 1)
    return gradient, x, weight, mean, var, *of_batch, True, 1e-5, [True, True, True]


def _layer(rows: int, width: int, dtype: torch.dtype, turned: bool, pool: TensorPool) -> Arguments:
    return _rows(rows, width, dtype, turned, pool), [width], pool(width, dtype=dtype), pool(width, dtype=dtype), 1e-5


def _layer_backward(rows: int, width: int, dtype: torch.dtype, layouts: str, pool: TensorPool) -> Arguments:
    x, sizes, weight, bias, eps = _layer(rows, width, dtype, layouts[1] == "t", pool)
    _, mean, rstd = aten.native_layer_norm.default(x, sizes, weight, bias, eps)
    return _rows(rows, width, dtype, layouts[0] == "t", pool), x, sizes, mean, rstd, weight, bias, [True, True, True]


def _rows(rows: int, width: int, dtype: torch.dtype, turned: bool, pool: TensorPool) -> torch.Tensor:
    """Returns a tensor of [rows, width]: contiguous, or transposed if `turned`, as in a permuted image."""
    return pool(width, rows, dtype=dtype).t() if turned else pool(rows, width, dtype=dtype)


def _rms(rows: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(rows, width, dtype=dtype), [width], pool(width, dtype=dtype), 1e-5


def _rms_backward(rows: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    x, sizes, weight, _ = _rms(rows, width, dtype, pool)
    return pool(rows, width, dtype=dtype), x, sizes, pool(rows, 1).abs(), weight, [True, True]


def _softmax(outer: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(outer, width, dtype=dtype), -1, False


def _softmax_backward(outer: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(outer, width, dtype=dtype), pool(outer, width, dtype=dtype), -1, dtype


def batch_backward(shape: tuple[int, ...], dtype: torch.dtype, last: bool, pool: TensorPool) -> Arguments:
    """Returns the arguments of the backward of cuDNN's batch norm. If `last`, the channels are the last in memory."""
    x, weight, bias, mean, var, *_ = native_batch(shape, dtype, last, True, pool)
    _, save_mean, save_var, reserve = aten.cudnn_batch_norm.default(x, weight, bias, mean, var, True, 0.1, 1e-5)
    return x, image_of(dtype, last, shape, pool), weight, mean, var, save_mean, save_var, 1e-5, reserve


def _group(batch: int, channels: int, side: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    x = pool(batch, channels, side, side, dtype=dtype)
    return x, pool(channels, dtype=dtype), pool(channels, dtype=dtype), batch, channels, side * side, 32, 1e-5


def _group_backward(batch: int, channels: int, side: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    x, weight, bias, *sizes, eps = _group(batch, channels, side, dtype, pool)
    _, mean, rstd = aten.native_group_norm.default(x, weight, bias, *sizes, eps)
    gradient = pool(batch, channels, side, side, dtype=dtype)
    return gradient, x, mean, rstd, weight, *sizes, [True, True, True]
