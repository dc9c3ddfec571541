"""Products of matrices of random sizes, in all precisions, of which half have the widths of ordinary nets."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from unstall.virtual.costs.suite.case import Arguments, Case, TensorPool, log_uniform

_MOST_ELEMENTS = 1 << 27
_HOT = {"addmm": (1,), "bmm": (0, 1), "mm": (0,)}
"""By operator, which arguments the operator before has just written."""
_WIDTHS = (
    10, 16, 32, 48, 50, 64, 80, 100, 120, 128, 144, 160, 192, 200, 240, 256, 288, 300, 320, 384, 400, 432, 500, 512,
    576, 600, 640, 720, 768, 784, 800, 864, 960, 1_000, 1_024, 1_152, 1_200, 1_280, 1_408, 1_536, 1_664, 1_792, 1_920,
    2_000, 2_048, 2_304, 2_560, 2_816, 3_000, 3_072, 3_200, 3_456, 3_584, 4_000, 4_096, 5_120, 6_144, 8_192,
)  # fmt: skip
_BATCHES = 1, 2, 5, 10, 20, 30, 40, 50
_LENGTHS = 1, 7, 10, 12, 16, 31, 36, 40, 63, 81, 96, 100, 121, 128, 150, 169, 225, 256, 289, 300


@dataclass(frozen=True)
class Product:
    """A product: [batch, rows, deep] x [batch, deep, columns].

    Attributes:
        operator: "mm", "addmm" (with a bias) or "bmm".
        dtype: The data type.
        precision: "tf32", or "" for float32 as it is.
        layout: For each factor, "n" if its rows are contiguous, "t" if its columns are.
        sizes: The batch, rows, columns and depth.
    """

    operator: str
    dtype: str
    precision: str
    layout: str
    sizes: tuple[int, int, int, int]

    @property
    def gflop(self) -> float:
        """The floating-point operations, in billions."""
        return 2e-9 * math.prod(self.sizes)

    def specs(self) -> tuple[tuple[int, ...], ...]:
        """Returns the sizes of the two factors and the result."""
        batch, rows, columns, deep = self.sizes
        several = (batch,) if self.operator == "bmm" else ()
        return (*several, rows, deep), (*several, deep, columns), (*several, rows, columns)

    def build(self, pool: TensorPool) -> Arguments:
        """Returns the arguments of the operator."""
        dtype = getattr(torch, self.dtype)
        factors = []
        for sizes, letter in zip(self.specs(), self.layout, strict=False):
            turned = (*sizes[:-2], sizes[-1], sizes[-2])
            factors.append(pool(*turned, dtype=dtype).mT if letter == "t" else pool(*sizes, dtype=dtype))
        return (pool(self.sizes[2], dtype=dtype), *factors) if self.operator == "addmm" else tuple(factors)

    def case(self, rank: int = 0) -> Case:
        """Returns the product as a case of the suite, as important as `rank` says."""
        return Case(f"{self.operator}.default", self.build, rank, _HOT[self.operator], self.gflop, self.precision)


def products(most: int, seed: int, batched: float = 0.15) -> Iterator[Product]:
    """Yields random products.

    Args:
        most: How many.
        seed: The seed of their sizes.
        batched: The part of them that has several matrices.
    """
    draw = random.Random(seed)
    count = 0
    while count < most:
        of, kind = draw.random(), draw.random()
        operator = "bmm" if of < batched else "addmm" if of < 0.5 else "mm"
        dtype = "float32" if kind < 0.65 else "bfloat16" if kind < 0.87 else "float16"
        precision = "tf32" if 0.5 <= kind < 0.65 else ""
        layout = draw.choice(("nn", "nt", "tn") if operator != "addmm" else ("nt", "nt", "nt", "nn"))
        product = Product(operator, dtype, precision, layout, _sizes(draw, operator, layout))
        largest = max(map(math.prod, product.specs()))
        if product.gflop <= (120 if dtype == "float32" and not precision else 500) and largest <= _MOST_ELEMENTS:
            count += 1
            yield product


def _sizes(draw: random.Random, operator: str, layout: str) -> tuple[int, int, int, int]:
    if operator == "bmm":
        batch = log_uniform(draw, 2, 512)
        rows, columns, deep = (
            log_uniform(draw, 1, 2_048) if draw.random() < 0.5 else 16 * log_uniform(draw, 1, 128) for _ in range(3)
        )
        return batch, rows, columns, deep
    if draw.random() < 0.45:
        rows = draw.choice(_BATCHES) * draw.choice(_LENGTHS)
        columns, deep = draw.choice(_WIDTHS), draw.choice(_WIDTHS)
        return (1, draw.choice(_WIDTHS), draw.choice(_WIDTHS), rows) if layout == "tn" else (1, rows, columns, deep)
    return 1, _size(draw), _size(draw), _size(draw)


def _size(draw: random.Random) -> int:
    kind = draw.random()
    for share, step in ((0.45, 1), (0.6, 8), (0.8, 64)):
        if kind < share:
            return step * log_uniform(draw, 1, 8_192 // step)
    return 128 * log_uniform(draw, 1, 64)
