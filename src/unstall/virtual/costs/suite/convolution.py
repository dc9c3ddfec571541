"""Cases of convolutions as in models of images and audio, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from unstall.virtual.costs.suite.case import Arguments, Case, TensorPool
from unstall.virtual.costs.suite.conv_shapes import Shape, grouped, plain, pyramids, sampled, varied

_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_SIDES = (7, 14, 28, 56, 112)
_POWERS = (8, 16, 32, 64, 128)
"""The side lengths of small images and of latents. For powers of two, cuDNN chooses other kernels
than for sizes beside them.
"""
_SAMPLED, _VARIED, _PLAIN, _PYRAMIDS, _GROUPED = 2000, 5500, 11000, 400, 300
FIRST_CHANNELS = 4  # up to how many an input is taken for images, which need no gradient


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
    for shape in sampled(_SAMPLED, seed=0):
        both = forward(shape, 2), _trained_backward(shape)
        yield from both
        if shape.dtype is torch.float32:
            yield from (replace(case, precision="ieee") for case in both)
    others = *varied(_VARIED, seed=0), *plain(_PLAIN, seed=0), *pyramids(_PYRAMIDS, seed=0), *grouped(_GROUPED, seed=0)
    for shape in others:
        yield forward(shape, 3)
        yield _trained_backward(shape)


def _shapes(batch: int) -> Iterator[Shape]:
    seen = set()
    for shape in (*_stems(batch), *_square(batch), *_pointwise(batch), *_depthwise(batch), *_grouped(batch)):
        if shape not in seen:
            seen.add(shape)
            yield shape


def _stems(batch: int) -> Iterator[Shape]:
    for filters in (16, 24, 32, 40, 64):
        yield Shape(batch, 3, filters, (224, 224), 3, 2)
    yield Shape(batch, 3, 64, (224, 224), 7, 2)
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
        yield Shape(batch, 3, filters, (side, side), kernel, kernel, bias=True)
    for filters, side in ((32, 512), (64, 512), (64, 224), (32, 224)):
        yield Shape(batch, 3, filters, (side, side), 7, 4, bias=True)
    for channels, side in ((96, 56), (192, 28), (384, 14), (128, 56), (256, 28), (512, 14)):
        yield Shape(batch, channels, 2 * channels, (side, side), 2, 2, bias=True)
    for channels, filters, side in (
        (32, 64, 128),
        (64, 160, 64),
        (160, 256, 32),
        (64, 128, 56),
        (128, 320, 28),
        (320, 512, 14),
    ):
        yield Shape(batch, channels, filters, (side, side), 3, 2, bias=True)
    for channels, side, kernel in ((32, 128, 8), (64, 64, 4), (160, 32, 2), (64, 56, 8), (128, 28, 4), (320, 14, 2)):
        yield Shape(batch, channels, channels, (side, side), kernel, kernel, bias=True)
    for filters in (384, 512, 768, 1024):
        yield Shape(batch, 80, filters, (1, 3000), 3, 1, bias=True)
        yield Shape(batch, filters, filters, (1, 3000), 3, 2, bias=True)


def _square(batch: int) -> Iterator[Shape]:
    for channels in _WIDTHS:
        for side in (*_SIDES, *_POWERS):
            if 448 <= channels * side <= 8192:
                yield Shape(batch, channels, channels, (side, side), 3)
                if side > 7:
                    yield Shape(batch, channels, channels, (side, side), 3, 2)
                    yield Shape(batch, channels, 2 * channels, (side, side), 3, 2)


def _pointwise(batch: int) -> Iterator[Shape]:
    for channels in (*_WIDTHS, 144, 160, 240, 320, 480, 576, 672, 960, 1280):
        for side in _SIDES:
            for ratio in (1 / 6, 1 / 4, 1 / 2, 1, 2, 4, 6):
                filters = round(channels * ratio / 8) * 8
                if min(channels, filters) * side > 14336 or not max(channels, filters) * side >= 448 or filters < 16:
                    continue
                if max(channels, filters) * side <= 16384:
                    yield Shape(batch, channels, filters, (side, side), 1)
                if ratio in (1, 2) and side > 7 and channels * side <= 16384:
                    yield Shape(batch, channels, filters, (side, side), 1, 2)
    for channels in (16, 32, 64, 96, 128, 192, 256, 480, 512, 672, 1152, 1280, 2048):
        for filters in (8, 16, 24, 32, 48, 64, 128):
            if filters * 32 >= channels >= filters:
                yield Shape(batch, channels, filters, (1, 1), 1, bias=True)
                yield Shape(batch, filters, channels, (1, 1), 1, bias=True)
    for channels in (256, 512, 768):
        yield Shape(batch, channels, 256, (128, 128), 1)


def _depthwise(batch: int) -> Iterator[Shape]:
    for channels in (16, 32, 48, 64, 96, 128, 144, 192, 240, 288, 384, 480, 576, 672, 768, 960, 1152, 1280, 2048):
        for side in (*_SIDES, 64, 32, 16):
            if 448 <= channels * side <= 16384:
                for kernel in (3, 5, 7):
                    yield Shape(batch, channels, channels, (side, side), kernel, groups=channels, bias=kernel != 5)
                if side > 7:
                    yield Shape(batch, channels, channels, (side, side), 3, 2, groups=channels)
                    yield Shape(batch, channels, channels, (side, side), 5, 2, groups=channels)


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
                yield Shape(batch, channels, channels, (side, side), 3, groups=channels // each)
                yield Shape(batch, channels, channels, (2 * side, 2 * side), 3, 2, groups=channels // each)


def forward(shape: Shape, rank: int = 0) -> Case:
    """Returns the case of a convolution's forward pass."""
    return Case("convolution.default", partial(_forward, shape), rank=rank, hot=(0,), gflop=shape.gflop)


def backward(shape: Shape, wanted: str, rank: int = 0) -> Case:
    """Returns the case of a convolution's backward pass.

    Args:
        shape: The convolution.
        wanted: The gradients that it computes, as letters: "x" of the input, "w" of the weight.
        rank: How important the case is (see `Case`).
    """
    build = partial(_backward, shape, wanted)
    return Case("convolution_backward.default", build, rank=rank, hot=(0,), gflop=len(wanted) * shape.gflop)


def _both(shape: Shape, rank: int) -> Iterator[Case]:
    if shape.elements > 1 << 27:
        return
    if shape.layouts[1] == "c":
        yield forward(shape, rank)
    if shape.batch in (8, 16, 32):
        yield backward(shape, "w" if shape.channels in (3, 80) else "xw", rank + (shape.batch != 8))


def _trained_backward(shape: Shape) -> Case:
    return backward(shape, "w" if shape.channels <= FIRST_CHANNELS else "xw", 3)


def _tensors(shape: Shape, pool: TensorPool) -> tuple[torch.Tensor, torch.Tensor]:
    x = pool(shape.batch, shape.channels, *shape.sides, dtype=shape.dtype)
    weight = pool(shape.filters, shape.channels // shape.groups, *shape.kernels, dtype=shape.dtype)
    return x.contiguous(memory_format=torch.channels_last) if shape.layouts[0] == "l" else x, weight


def _how(shape: Shape) -> Arguments:
    rank = len(shape.sides)
    return shape.strides, shape.paddings, [shape.dilation] * rank, False, [0] * rank, shape.groups


def _forward(shape: Shape, pool: TensorPool) -> Arguments:
    bias = pool(shape.filters, dtype=shape.dtype) if shape.bias else None
    return *_tensors(shape, pool), bias, *_how(shape)


def _backward(shape: Shape, wanted: str, pool: TensorPool) -> Arguments:
    x, weight = _tensors(shape, pool)
    gradient = pool(shape.batch, shape.filters, *shape.out, dtype=shape.dtype)
    if shape.layouts[1] == "l":
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    mask = ["x" in wanted, "w" in wanted, shape.bias]
    sizes = [shape.filters] if shape.bias else [0]
    return gradient, x, weight, sizes, *_how(shape), mask
