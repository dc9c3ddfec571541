"""Shapes of convolutions, and random ones as models have them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch

from unstall.virtual.costs.suite.case import log_uniform

_BATCHES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64)
_CHANNELS = (1, 3, 3, 4, 8, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)
_EDGES = (7, 8, 10, 14, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224)
_KERNELS = (1, 3, 3, 3, 5, 5, 7)
_TRAINED_DTYPES = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.bfloat16, torch.float16)
_MOST_ELEMENTS, _MOST_GFLOP = 1 << 26, 250.0

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
_OVER_IMAGES = (
    (3, 1, 1), (3, 2, 1), (4, 2, 1), (5, 1, 2), (5, 2, 2), (3, 1, 0), (5, 1, 0), (7, 1, 3), (2, 2, 0), (1, 1, 0),
)  # fmt: skip
"""Kernel, stride and padding. The first two are also those over volumes."""
_OVER_LINES = (
    (3, 1, 1), (3, 2, 1), (5, 1, 2), (7, 1, 3), (9, 1, 4), (9, 2, 4), (3, 1, 0), (5, 1, 0), (4, 2, 1), (8, 4, 2),
)  # fmt: skip


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

    def is_within(self, share: float) -> bool:
        """Returns whether there is an output, and both it and the work are at most a share of the largest."""
        return min(self.out) > 0 and self.elements <= share * _MOST_ELEMENTS and self.gflop <= share * _MOST_GFLOP


def sampled(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions as in training: of square images and filters, padded so that the
    stride alone makes the result smaller.

    Args:
        count: How many.
        seed: The seed of the random choice.
    """
    return _distinct(count, seed, _trained)


def varied(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions of all other kinds: of lines, images and volumes of any size, with or without padding
    and a bias, with even, long or dilated filters. The arguments are those of `sampled`.
    """
    return _distinct(count, seed, _of_any_kind)


def plain(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions with the sizes that people choose for small nets: six in ten of images, two of lines,
    two of volumes. The arguments are those of `sampled`.
    """
    return _distinct(count, seed, _of_small_nets)


def pyramids(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions of images of any height and width in small batches, as those that find objects. The
    arguments are those of `sampled`.
    """
    return _distinct(count, seed, _of_pyramids)


def grouped(count: int, seed: int) -> list[Shape]:
    """Returns random convolutions with some groups, of lines with long filters and of images. The arguments are those
    of `sampled`.
    """
    return _distinct(count, seed, _of_groups)


def _distinct(count: int, seed: int, draw_one: Callable[[random.Random], Shape | None]) -> list[Shape]:
    """Returns `count` different shapes. `draw_one` returns None if what it drew is too large, or no convolution."""
    chosen: dict[Shape, None] = {}
    draw = random.Random(seed)
    while len(chosen) < count:
        if (shape := draw_one(draw)) is not None:
            chosen[shape] = None
    return list(chosen)


def _trained(draw: random.Random) -> Shape | None:
    channels, edge = draw.choice(_CHANNELS), draw.choice(_EDGES)
    filters = _filters(draw, channels)
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
    return shape if shape.filters >= 8 and shape.is_within(1) else None


def _of_any_kind(draw: random.Random) -> Shape | None:
    sides, kernel, stride, dilation = draw.choice((_line, _line, _image, _image, _image, _volume))(draw)
    channels = draw.choice(_CHANNELS)
    filters = _filters(draw, channels)
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
    return shape if shape.filters >= 4 and shape.is_within(0.5) else None


def _of_small_nets(draw: random.Random) -> Shape | None:
    kind = draw.choice("iiilviiilv")
    forms = {"i": _OVER_IMAGES, "l": _OVER_LINES, "v": _OVER_IMAGES[:2]}[kind]
    kernel, stride, padding = draw.choice(forms)
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
    return shape if shape.is_within(1) else None


def _of_pyramids(draw: random.Random) -> Shape | None:
    channels = draw.choice((64, 128, 256, 256, 512))
    shape = Shape(
        draw.choice((1, 1, 2, 4, 8, 16)),
        channels,
        draw.choice((channels, channels, 36, 2 * channels)),
        (log_uniform(draw, 5, 200), log_uniform(draw, 5, 200)),
        draw.choice((1, 3, 3, 3)),
        draw.choice((1, 1, 1, 2)),
        bias=draw.choice((False, True)),
        dtype=draw.choice(_TRAINED_DTYPES),
    )
    return shape if shape.is_within(1) else None


def _of_groups(draw: random.Random) -> Shape | None:
    channels, line = 64 * draw.choice((1, 2, 4, 8, 12, 16)), draw.choice((False, True))
    edge = log_uniform(draw, 7, 112)
    shape = Shape(
        draw.choice(_BATCHES),
        channels,
        draw.choice((channels, channels, 2 * channels)),
        (log_uniform(draw, 30, 4_000),) if line else (edge, edge),
        draw.choice((3, 5, 7, 15, 31, 63, 127)) if line else draw.choice((3, 3, 5)),
        draw.choice((1, 1, 2)),
        draw.choice((2, 4, 8, 16, 16, 32)),
        bias=draw.choice((False, True)),
        dtype=draw.choice(_TRAINED_DTYPES),
    )
    return shape if shape.is_within(1) else None


def _filters(draw: random.Random, channels: int) -> int:
    return draw.choice((channels, channels, 2 * channels, channels // 2, draw.choice(_CHANNELS)))


_Form: TypeAlias = tuple[tuple[int, ...], int, int, int]
"""The sides of an input; the kernel, the stride and the dilation."""


def _line(draw: random.Random) -> _Form:
    stride = draw.choice((1, 1, 1, 2, 4))
    kernel = draw.choice((1, 2, 3, 3, 3, 5, 7, 8, 9, 11, 15, 25, 31))
    return (log_uniform(draw, 12, 16_000),), kernel, stride, draw.choice((1, 1, 1, 2, 4, 8)) if stride == 1 else 1


def _image(draw: random.Random) -> _Form:
    edge = draw.choice((28, 32, 64, draw.choice(_EDGES), *(log_uniform(draw, 4, 240) for _ in range(4))))
    kernel = draw.choice((2, 3, 3, 3, 3, 4, 4, 5, 5, 7, 9, 11))
    stride = draw.choice((1, 1, 1, 2, 2, 3, kernel))
    return (edge, edge), kernel, stride, draw.choice((1,) * 8 + (2, 4)) if stride == 1 else 1


def _volume(draw: random.Random) -> _Form:
    edge = log_uniform(draw, 6, 112)
    return (log_uniform(draw, 3, 32), edge, edge), draw.choice((1, 2, 3, 3, 3, 3, 5)), draw.choice((1, 1, 2)), 1
