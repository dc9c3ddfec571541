"""Cases of convolutions as in models of images and audio, forward and backward."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

import torch

from unstall.virtual.costs.suite.case import Arguments, Case, TensorPool

_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_SIDES = (7, 14, 28, 56, 112)
_POWERS = (8, 16, 32, 64, 128)
"""The side lengths of small images and of latents. For powers of two, cuDNN chooses other kernels
than for sizes beside them.
"""
_BATCHES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64)
_CHANNELS = (1, 3, 3, 4, 8, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)
_EDGES = (7, 8, 10, 14, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224)
_KERNELS = (1, 3, 3, 3, 5, 5, 7)
_TRAINED_DTYPES = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.bfloat16, torch.float16)
_SAMPLED, _VARIED, _PLAIN = 2000, 5500, 7500
FIRST_CHANNELS = 4  # up to how many an input is taken for images, which need no gradient
_MOST_ELEMENTS, _MOST_GFLOP = 1 << 26, 250.0  # of a sampled convolution


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution.

    Attributes:
        batch: The size of the batch.
        channels: The number of input channels.
        filters: The number of output channels.
        sides: The length of an input, its height and width, or its depth, height and width.
        kernel: The side length of the filters. Those of flat images are as flat.
        stride: The stride.
        groups: The number of groups.
        bias: Whether it adds a bias.
        dtype: The data type.
        layouts: The layout of the input, and that of the gradient of the output, as letters: "c" is
            NCHW, "l" is NHWC. Weights are NCHW.
        padding: By how much the input is padded on each side. None: so that the stride alone makes
            the output smaller, or not at all for patches.
        dilation: The distance of neighbouring taps of a filter.
    """

    batch: int
    channels: int
    filters: int
    sides: tuple[int, ...]
    kernel: int
    stride: int = 1
    groups: int = 1
    bias: bool = False
    dtype: torch.dtype = torch.float32
    layouts: str = "cc"
    padding: int | None = None
    dilation: int = 1

    @property
    def _flat(self) -> bool:
        return len(self.sides) == 2 and self.sides[0] == 1 < self.sides[1]

    @property
    def kernels(self) -> tuple[int, ...]:
        """The size of a filter along each side."""
        return (1, self.kernel) if self._flat else (self.kernel,) * len(self.sides)

    @property
    def strides(self) -> list[int]:
        """The stride along each side."""
        return [1, self.stride] if self._flat else [self.stride] * len(self.sides)

    @property
    def paddings(self) -> list[int]:
        """The padding of each side."""
        usual = self.dilation * (self.kernel - 1) // 2 if self.stride != self.kernel else 0
        padding = usual if self.padding is None else self.padding
        return [0, padding] if self._flat else [padding] * len(self.sides)

    @property
    def out(self) -> tuple[int, ...]:
        """The sides of the output."""
        each = zip(self.sides, self.kernels, self.strides, self.paddings, strict=True)
        return tuple(
            (side + 2 * around - self.dilation * (taps - 1) - 1) // step + 1 for side, taps, step, around in each
        )

    @property
    def elements(self) -> int:
        """The size of the input or of the output, whichever is larger."""
        return self.batch * max(self.channels * prod(self.sides), self.filters * prod(self.out))

    @property
    def gflop(self) -> float:
        """About how many floating-point operations the forward pass has, in billions."""
        area = prod(self.sides) // int(self.stride ** len(self.sides))
        return 2e-9 * self.batch * area * self.filters * self.channels // self.groups * prod(self.kernels)


def sampled(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions as in training: of square images and filters, padded so that the
    stride alone makes the result smaller.

    Args:
        count: How many.
        seed: The seed of the random choice.
    """
    chosen: dict[Shape, None] = {}
    draw = random.Random(seed)
    while len(chosen) < count:
        channels, edge = draw.choice(_CHANNELS), draw.choice(_EDGES)
        filters = draw.choice((channels, channels, 2 * channels, channels // 2, draw.choice(_CHANNELS)))
        groups = draw.choice((1,) * 10 + (2, channels))
        shape = Shape(
            draw.choice(_BATCHES),
            channels,
            channels if groups > 1 else filters,
            (edge, edge),
            draw.choice(_KERNELS),
            draw.choice((1, 1, 2)),
            groups if channels % groups == 0 else 1,
            dtype=draw.choice(_TRAINED_DTYPES),
            layouts=draw.choice(("cc",) * 5 + ("ll",)),
        )
        most = shape.batch * edge**2 * max(channels, shape.filters // shape.stride**2)
        if most <= _MOST_ELEMENTS and shape.gflop <= _MOST_GFLOP and shape.filters >= 8:
            chosen[shape] = None
    return list(chosen)


def varied(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions of all other kinds: of lines, images and volumes of any size, with or without padding
    and a bias, with even, long or dilated filters.

    Args:
        count: How many.
        seed: The seed of the random choice.
    """
    chosen: dict[Shape, None] = {}
    draw = random.Random(seed)
    while len(chosen) < count:
        sides, kernel, stride, dilation = draw.choice((_line, _line, _image, _image, _image, _volume))(draw)
        channels = draw.choice(_CHANNELS)
        filters = draw.choice((channels, channels, 2 * channels, channels // 2, draw.choice(_CHANNELS)))
        groups = draw.choice((1,) * 14 + (channels,))
        same = dilation * (kernel - 1) // 2
        shape = Shape(
            draw.choice(_BATCHES),
            channels,
            channels if groups > 1 else filters,
            sides,
            kernel,
            stride,
            groups,
            draw.choice((False, True)),
            draw.choice(_TRAINED_DTYPES),
            padding=draw.choice((0, 0, same, same, 1, kernel // 2, dilation * (kernel - 1))),
            dilation=dilation,
        )
        small = shape.elements <= _MOST_ELEMENTS >> 1 and shape.gflop <= _MOST_GFLOP / 2
        if min(shape.out) > 0 and shape.filters >= 4 and small:
            chosen[shape] = None
    return list(chosen)


_Form: TypeAlias = tuple[tuple[int, ...], int, int, int]
"""The sides of an input; the kernel, the stride and the dilation."""


def _between(draw: random.Random, least: int, most: int) -> int:
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def _line(draw: random.Random) -> _Form:
    stride = draw.choice((1, 1, 1, 2, 4))
    kernel = draw.choice((1, 2, 3, 3, 3, 5, 7, 8, 9, 11, 15, 25, 31))
    return (_between(draw, 12, 16_000),), kernel, stride, draw.choice((1, 1, 1, 2, 4, 8)) if stride == 1 else 1


def _image(draw: random.Random) -> _Form:
    edge = draw.choice((28, 32, 64, draw.choice(_EDGES), *(_between(draw, 4, 240) for _ in range(4))))
    kernel = draw.choice((2, 3, 3, 3, 3, 4, 4, 5, 5, 7, 9, 11))
    stride = draw.choice((1, 1, 1, 2, 2, 3, kernel))
    return (edge, edge), kernel, stride, draw.choice((1,) * 8 + (2, 4)) if stride == 1 else 1


def _volume(draw: random.Random) -> _Form:
    edge = _between(draw, 6, 112)
    return (_between(draw, 3, 32), edge, edge), draw.choice((1, 2, 3, 3, 3, 3, 5)), draw.choice((1, 1, 2)), 1


_PAIRS = (
    (1, 16), (1, 32), (1, 64), (3, 16), (3, 32), (3, 64), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64), (64, 128),
    (128, 128), (128, 256), (256, 256), (256, 512), (512, 512),
)  # fmt: skip
"""Channels and filters as in small nets."""
_PLAIN_IMAGES = (4, 7, 8, 12, 14, 16, 24, 26, 28, 32, 48, 56, 64, 96, 112, 128, 160, 224)
_PLAIN_LINES = (64, 100, 128, 256, 500, 512, 1_000, 1_024, 2_048, 4_000, 8_000, 16_000)
_PLAIN_VOLUMES = (
    (8, 8, 8), (16, 16, 16), (32, 32, 32), (64, 64, 64), (4, 14, 14), (8, 28, 28), (16, 56, 56), (16, 64, 64),
    (16, 112, 112), (32, 112, 112),
)  # fmt: skip


def plain(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions with the sizes that people choose for small nets.

    Args:
        count: How many. Six in ten are of images, two of lines, two of volumes.
        seed: The seed of the random choice.
    """
    draw = random.Random(seed)
    images = (
        (3, 1, 1),
        (3, 2, 1),
        (4, 2, 1),
        (5, 1, 2),
        (5, 2, 2),
        (3, 1, 0),
        (5, 1, 0),
        (7, 1, 3),
        (2, 2, 0),
        (1, 1, 0),
    )
    lines = (
        (3, 1, 1),
        (3, 2, 1),
        (5, 1, 2),
        (7, 1, 3),
        (9, 1, 4),
        (9, 2, 4),
        (3, 1, 0),
        (5, 1, 0),
        (4, 2, 1),
        (8, 4, 2),
    )
    chosen: dict[Shape, None] = {}
    while len(chosen) < count:
        kind = draw.choice("iiilviiilv")
        kernel, stride, padding = draw.choice(lines if kind == "l" else images[: 2 if kind == "v" else None])
        edge = draw.choice(_PLAIN_IMAGES)
        sides = {"i": (edge, edge), "l": (draw.choice(_PLAIN_LINES),), "v": draw.choice(_PLAIN_VOLUMES)}[kind]
        shape = Shape(
            draw.choice((4, 8, 16, 32, 64, 128, 256) if kind != "v" else (1, 2, 4, 8, 16, 32)),
            *draw.choice(_PAIRS),
            sides,
            kernel,
            stride,
            dtype=draw.choice((torch.float32,) * 5 + (torch.bfloat16, torch.float16)),
            padding=padding,
        )
        if min(shape.out) > 0 and shape.elements <= _MOST_ELEMENTS and shape.gflop <= _MOST_GFLOP:
            chosen[shape] = None
    return list(chosen)


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
        both = forward(shape, 2), backward(shape, "w" if shape.channels <= FIRST_CHANNELS else "xw", 3)
        yield from both
        if shape.dtype is torch.float32:
            yield from (replace(case, precision="ieee") for case in both)
    for shape in (*varied(_VARIED, seed=0), *plain(_PLAIN, seed=0)):
        yield forward(shape, 3)
        yield backward(shape, "w" if shape.channels <= FIRST_CHANNELS else "xw", 3)


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
