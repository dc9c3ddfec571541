"""Cases of convolutions as in models of images and audio, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from unstall.virtual.costs.suite.case import Arguments, Case, TensorPool

_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_SIDES = (7, 14, 28, 56, 112)
_POWERS = (8, 16, 32, 64, 128)
"""The side lengths of small images and of latents. For powers of two, cuDNN chooses other kernels
than for sizes beside them.
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution.

    Attributes:
        batch: The size of the batch.
        channels: The number of input channels.
        filters: The number of output channels.
        height: The height of the input.
        width: The width of the input.
        kernel: The side length of the filters.
        stride: The stride.
        groups: The number of groups.
        bias: Whether it adds a bias.
        dtype: The data type.
        layouts: The layout of the input, and that of the gradient of the output, as letters: "c" is
            NCHW, "l" is NHWC. Weights are NCHW.
    """

    batch: int
    channels: int
    filters: int
    height: int
    width: int
    kernel: int
    stride: int = 1
    groups: int = 1
    bias: bool = False
    dtype: torch.dtype = torch.float32
    layouts: str = "cc"


def cases() -> Iterator[Case]:
    """Yields the cases of convolutions."""
    for batch, rank in ((1, 0), (8, 0), (32, 0), (4, 2), (16, 2), (64, 3)):
        for shape in _shapes(batch):
            yield from _both(shape, rank)
    for batch in (1, 8, 32):
        for shape in _shapes(batch):
            if shape.kernel == shape.stride > 1 or (shape.groups > 1 and shape.kernel == 7):
                for layouts in ("lc", "cl", "ll"):
                    yield from _both(replace(shape, layouts=layouts), 0)
            elif shape.groups == 1 and shape.channels in (3, 64, 128, 256, 512):
                for layouts in ("lc", "cl", "ll"):
                    yield from _both(replace(shape, layouts=layouts), 3 if layouts != "ll" else 2)
    for batch in (8, 32):
        for shape in _shapes(batch):
            if shape.groups == 1 and shape.channels in (3, 64, 128, 256, 512):
                for dtype in (torch.bfloat16, torch.float16):
                    yield from _both(replace(shape, dtype=dtype), 3)


def _shapes(batch: int) -> Iterator[Shape]:
    seen = set()
    for shape in (*_stems(batch), *_square(batch), *_pointwise(batch), *_depthwise(batch), *_grouped(batch)):
        if shape not in seen:
            seen.add(shape)
            yield shape


def _stems(batch: int) -> Iterator[Shape]:
    for filters in (16, 24, 32, 40, 64):
        yield Shape(batch, 3, filters, 224, 224, 3, 2)
    yield Shape(batch, 3, 64, 224, 224, 7, 2)
    for filters, kernel, side in (
        (192, 16, 224),
        (384, 16, 224),
        (768, 16, 224),
        (1024, 16, 224),
        (384, 14, 224),
        (768, 14, 224),
        (768, 32, 224),
        (96, 4, 224),
        (128, 4, 224),
        (192, 4, 224),
        (768, 16, 384),
    ):
        yield Shape(batch, 3, filters, side, side, kernel, kernel, bias=True)
    for filters, side in ((32, 512), (64, 512), (64, 224), (32, 224)):
        yield Shape(batch, 3, filters, side, side, 7, 4, bias=True)
    for channels, side in ((96, 56), (192, 28), (384, 14), (128, 56), (256, 28), (512, 14)):
        yield Shape(batch, channels, 2 * channels, side, side, 2, 2, bias=True)
    for channels, filters, side in (
        (32, 64, 128),
        (64, 160, 64),
        (160, 256, 32),
        (64, 128, 56),
        (128, 320, 28),
        (320, 512, 14),
    ):
        yield Shape(batch, channels, filters, side, side, 3, 2, bias=True)
    for channels, side, kernel in ((32, 128, 8), (64, 64, 4), (160, 32, 2), (64, 56, 8), (128, 28, 4), (320, 14, 2)):
        yield Shape(batch, channels, channels, side, side, kernel, kernel, bias=True)
    for filters in (384, 512, 768, 1024):
        yield Shape(batch, 80, filters, 1, 3000, 3, 1, bias=True)
        yield Shape(batch, filters, filters, 1, 3000, 3, 2, bias=True)


def _square(batch: int) -> Iterator[Shape]:
    for channels in _WIDTHS:
        for side in (*_SIDES, *_POWERS):
            if 448 <= channels * side <= 8192:
                yield Shape(batch, channels, channels, side, side, 3)
                if side > 7:
                    yield Shape(batch, channels, channels, side, side, 3, 2)
                    yield Shape(batch, channels, 2 * channels, side, side, 3, 2)


def _pointwise(batch: int) -> Iterator[Shape]:
    for channels in (*_WIDTHS, 144, 160, 240, 320, 480, 576, 672, 960, 1280):
        for side in _SIDES:
            for ratio in (1 / 6, 1 / 4, 1 / 2, 1, 2, 4, 6):
                filters = round(channels * ratio / 8) * 8
                if min(channels, filters) * side > 14336 or not max(channels, filters) * side >= 448 or filters < 16:
                    continue
                if max(channels, filters) * side <= 16384:
                    yield Shape(batch, channels, filters, side, side, 1)
                if ratio in (1, 2) and side > 7 and channels * side <= 16384:
                    yield Shape(batch, channels, filters, side, side, 1, 2)
    for channels in (16, 32, 64, 96, 128, 192, 256, 480, 512, 672, 1152, 1280, 2048):
        for filters in (8, 16, 24, 32, 48, 64, 128):
            if filters * 32 >= channels >= filters:
                yield Shape(batch, channels, filters, 1, 1, 1, bias=True)
                yield Shape(batch, filters, channels, 1, 1, 1, bias=True)
    for channels in (256, 512, 768):
        yield Shape(batch, channels, 256, 128, 128, 1)


def _depthwise(batch: int) -> Iterator[Shape]:
    for channels in (16, 32, 48, 64, 96, 128, 144, 192, 240, 288, 384, 480, 576, 672, 768, 960, 1152, 1280, 2048):
        for side in (*_SIDES, 64, 32, 16):
            if 448 <= channels * side <= 16384:
                for kernel in (3, 5, 7):
                    yield Shape(batch, channels, channels, side, side, kernel, groups=channels, bias=kernel != 5)
                if side > 7:
                    yield Shape(batch, channels, channels, side, side, 3, 2, groups=channels)
                    yield Shape(batch, channels, channels, side, side, 5, 2, groups=channels)


def _grouped(batch: int) -> Iterator[Shape]:
    for channels, each in (
        (64, 8),
        (128, 8),
        (64, 16),
        (128, 16),
        (160, 16),
        (384, 16),
        (320, 16),
        (256, 32),
        (512, 64),
        (912, 48),
    ):
        for side in (7, 14, 28, 56):
            if 448 <= channels * side <= 8192 and channels % each == 0:
                yield Shape(batch, channels, channels, side, side, 3, groups=channels // each)
                yield Shape(batch, channels, channels, 2 * side, 2 * side, 3, 2, groups=channels // each)


def _both(shape: Shape, rank: int) -> Iterator[Case]:
    area = shape.height * shape.width // shape.stride**2
    gflop = 2e-9 * shape.batch * area * shape.filters * shape.channels // shape.groups * shape.kernel**2
    if shape.batch * max(shape.channels * shape.height * shape.width, shape.filters * area) > 1 << 27:
        return
    if shape.layouts[1] == "c":
        yield Case("convolution.default", partial(_forward, shape), rank=rank, hot=(0,), gflop=gflop)
    if shape.batch in (8, 16, 32):
        needs_input = (True,) if shape.channels not in (3, 80) else (False,)
        late = rank + (shape.batch != 8)
        for needed in needs_input:
            yield Case(
                "convolution_backward.default", partial(_backward, shape, needed), rank=late, hot=(0,), gflop=2 * gflop
            )


def _tensors(shape: Shape, pool: TensorPool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, list[int]]:
    flat = shape.height == 1 and shape.width > 1
    x = pool(shape.batch, shape.channels, shape.height, shape.width, dtype=shape.dtype)
    weight = pool(
        shape.filters, shape.channels // shape.groups, 1 if flat else shape.kernel, shape.kernel, dtype=shape.dtype
    )
    if shape.layouts[0] == "l":
        x = x.contiguous(memory_format=torch.channels_last)
    side = (shape.kernel - 1) // 2 if shape.stride != shape.kernel else 0
    padding = [0 if flat else side, side]
    return x, weight, pool(shape.filters, dtype=shape.dtype) if shape.bias else None, padding


def _stride(shape: Shape) -> list[int]:
    return [1 if shape.height == 1 else shape.stride, shape.stride]


def _forward(shape: Shape, pool: TensorPool) -> Arguments:
    x, weight, bias, padding = _tensors(shape, pool)
    return x, weight, bias, _stride(shape), padding, [1, 1], False, [0, 0], shape.groups


def _backward(shape: Shape, needs_input: bool, pool: TensorPool) -> Arguments:
    x, weight, _, padding = _tensors(shape, pool)
    stride = _stride(shape)
    flat = torch.empty(x.shape, device="meta")
    like = torch.nn.functional.conv2d(
        flat, torch.empty(weight.shape, device="meta"), None, stride, padding, 1, shape.groups
    )
    gradient = pool(*like.shape, dtype=shape.dtype)
    if shape.layouts[1] == "l":
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    wanted = [needs_input, True, shape.bias]
    sizes = [shape.filters] if shape.bias else [0]
    return gradient, x, weight, sizes, stride, padding, [1, 1], False, [0, 0], shape.groups, wanted
