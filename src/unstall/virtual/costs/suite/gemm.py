"""Cases of matrix products as in linear layers and in attention that is not fused, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from unstall.virtual.costs.suite.case import MAX_ELEMENTS, Arguments, Case, TensorPool, spread
from unstall.virtual.costs.suite.random_products import products

_WIDTHS = (64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 4096)
_RATIOS = ((1, 1), (3, 1), (4, 1), (1, 4), (2, 1), (1, 2), (1, 3))
_ROWS = (
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    49,
    64,
    77,
    96,
    128,
    160,
    197,
    256,
    320,
    384,
    512,
    768,
    1024,
    1280,
    1576,
    2048,
    3072,
    4096,
    6304,
    8192,
    12544,
    16384,
    25088,
    50176,
    100352,
)
_LENGTHS = (
    1,
    32,
    49,
    50,
    64,
    77,
    100,
    128,
    144,
    160,
    196,
    197,
    200,
    256,
    257,
    300,
    384,
    400,
    500,
    512,
    577,
    640,
    784,
    1000,
    1024,
    1500,
    2048,
    3136,
)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_FEW_ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_HEADS = (2, 3, 10, 100, 1000, 21841)
_AT_RANDOM, _BATCHED = 3_000, 900
_VOCABULARIES = (30522, 32000, 32128, 50257, 50265, 50272, 51865)


def cases() -> Iterator[Case]:
    """Yields the cases of matrix products."""
    pairs = sorted({(a * d, b * d) for d in _WIDTHS for a, b in _RATIOS if max(a * d, b * d) <= 8192})
    for rows in _ROWS:
        for wide, deep in pairs:
            yield from _linear(rows, wide, deep, 0 if rows in _FEW_ROWS or rows in (197, 1576, 6304) else 1)
    usual = {batch * length for batch in _BATCHES for length in _LENGTHS}
    for rows in sorted(usual - set(_ROWS)):
        for wide, deep in pairs:
            if max(wide, deep) <= 4096 and rows * wide * deep < 60e9:
                yield from _linear(
                    rows, wide, deep, 1 if rows in (200, 392, 784, 1280, 1600, 5120, 6272, 6400, 12000, 48000) else 2
                )
    for rows in (1, 2, 4, 8, 16, 32, 64, 128):
        for classes in _HEADS:
            for width in (192, 320, 384, 512, 768, 1024, 1280, 2048):
                yield from _linear(rows, classes, width, 0)
    for rows in (
        1,
        8,
        16,
        32,
        64,
        128,
        160,
        200,
        256,
        384,
        512,
        768,
        1024,
        1280,
        1600,
        2048,
        3072,
        4096,
        6400,
        8192,
        16384,
    ):
        for words in _VOCABULARIES:
            for width in (384, 512, 768, 1024):
                yield from _linear(rows, words, width, 0)
    for dtype, rank in ((torch.bfloat16, 1), (torch.float16, 3)):
        for rows in _FEW_ROWS:
            for wide, deep in pairs:
                if all(
                    width in (64, 128, 256, 384, 512, 768, 1024, 1280, 2048, 3072, 4096, 8192) for width in (wide, deep)
                ):
                    yield from _linear(rows, wide, deep, rank, dtype)
            for words in (32000, 50257):
                yield from _linear(rows, words, 768, rank, dtype)
    yield from _batched()
    yield from _of_vectors()
    yield from _precise()
    chosen = *products(_AT_RANDOM, seed=11), *products(_BATCHED, seed=12, batched=1.0)
    yield from (product.case(rank=3) for product in chosen)


def _linear(rows: int, wide: int, deep: int, rank: int, dtype: torch.dtype = torch.float32) -> Iterator[Case]:
    if max(rows * wide, rows * deep, wide * deep) > MAX_ELEMENTS // 2:
        return
    gflop = 2e-9 * rows * wide * deep
    if gflop > 700:
        return
    make = partial(Case, gflop=gflop, rank=rank)
    yield make("addmm.default", partial(_addmm, rows, wide, deep, dtype, False), hot=(1,))
    if rank < 2:
        yield make("addmm.default", partial(_addmm, rows, wide, deep, dtype, True), hot=(1,))
    yield make("mm.default", partial(_mm, rows, wide, deep, dtype, "nn"), hot=(0,))
    yield make("mm.default", partial(_mm, rows, wide, deep, dtype, "tn"), hot=(0,))
    if rank != 1 or rows in _FEW_ROWS:
        yield make("mm.default", partial(_mm, rows, wide, deep, dtype, "nt"), hot=(0,))


def _addmm(rows: int, wide: int, deep: int, dtype: torch.dtype, turned: bool, pool: TensorPool) -> Arguments:
    """Returns the arguments of a linear layer. Its weight is stored as [wide, deep], or as [deep,
    wide] if `turned`, as in GPT-2.
    """
    x, bias = pool(rows, deep, dtype=dtype), pool(wide, dtype=dtype)
    weight = pool(deep, wide, dtype=dtype) if turned else pool(wide, deep, dtype=dtype).t()
    return bias, x, weight


def _mm(rows: int, wide: int, deep: int, dtype: torch.dtype, layout: str, pool: TensorPool) -> Arguments:
    """Returns the two factors of a matrix product of a linear layer whose weight is [wide, deep].
    `layout` says which product: "nt" of the forward pass, "nn" of the gradient of the input, or
    "tn" of the gradient of the weight.
    """
    x, weight, y = pool(rows, deep, dtype=dtype), pool(wide, deep, dtype=dtype), pool(rows, wide, dtype=dtype)
    return {"nt": (x, weight.t()), "nn": (y, weight), "tn": (y.t(), x)}[layout]


def _batched() -> Iterator[Case]:
    for dtype, rank in ((torch.float32, 1), (torch.bfloat16, 2)):
        for batch in (1, 4, 6, 8, 12, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1536):
            for length in (1, 16, 32, 49, 64, 100, 128, 197, 256, 512, 1024):
                for width in (32, 64, 80, 128):
                    if batch * length * max(length, width) > MAX_ELEMENTS // 4 or (batch > 16 and width == 80):
                        continue
                    gflop = 2e-9 * batch * length * length * width
                    for layout in ("scores", "values", "gradient"):
                        build = partial(_bmm, batch, length, width, dtype, layout)
                        yield Case("bmm.default", build, rank=rank, hot=(0, 1), gflop=gflop)


def _bmm(batch: int, length: int, width: int, dtype: torch.dtype, layout: str, pool: TensorPool) -> Arguments:
    query, key = pool(batch, length, width, dtype=dtype), pool(batch, length, width, dtype=dtype)
    weights = pool(batch, length, length, dtype=dtype)
    return {
        "scores": (query, key.transpose(1, 2)),
        "values": (weights, key),
        "gradient": (weights.transpose(1, 2), key),
    }[layout]


def _precise() -> Iterator[Case]:
    """Yields products of numbers that have 64 bits, or are complex."""
    for dtype in (torch.float64, torch.complex64, torch.complex128):
        for rows, wide, deep in spread(48, *[(16, 8_192)] * 3, most=1 << 34, seed=str(dtype)):
            for layout in ("nt", "nn", "tn"):
                build = partial(_mm, rows, wide, deep, dtype, layout)
                yield Case("mm.default", build, 2, (0,), 8e-9 * rows * wide * deep)
        for batch, length, width in spread(48, (2, 512), (8, 1_024), (8, 512), most=1 << 24, seed=f"batched {dtype}"):
            for layout in ("scores", "values"):
                build = partial(_bmm, batch, length, width, dtype, layout)
                yield Case("bmm.default", build, 2, (0, 1), 8e-9 * batch * length**2 * width)


def _of_vectors() -> Iterator[Case]:
    large = spread(150, (1, 400_000), (8, 400_000), most=MAX_ELEMENTS // 2)
    for dtype, rank in ((torch.float32, 1), (torch.bfloat16, 2)):
        for rows, deep in (*spread(40, (1, 60_000), (8, 60_000)), *large):
            for turned in (False, True):
                yield Case("mv.default", partial(_mv, rows, deep, dtype, turned), rank=rank, hot=(1,))
        for (length,) in spread(16, (16, 9_000_000)):
            yield Case("dot.default", partial(_dot, length, dtype), rank=rank)


def _mv(rows: int, deep: int, dtype: torch.dtype, turned: bool, pool: TensorPool) -> Arguments:
    matrix = pool(deep, rows, dtype=dtype).t() if turned else pool(rows, deep, dtype=dtype)
    return matrix, pool(deep, dtype=dtype)


def _dot(length: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(length, dtype=dtype), pool(length, dtype=dtype)
