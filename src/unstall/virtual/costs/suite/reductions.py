"""Cases of sums, means, extremes and norms over inner, outer, middle and all dimensions; also of sorting and scans."""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Iterator

import torch

from unstall.virtual.costs.suite.case import Build, Case

_OUTER = (
    1,
    2,
    4,
    8,
    16,
    32,
    64,
    128,
    197,
    256,
    392,
    512,
    768,
    1024,
    1576,
    2048,
    3072,
    4096,
    6272,
    8192,
    12544,
    16384,
    25088,
    65536,
    131072,
)
_INNER = (
    1,
    2,
    10,
    16,
    32,
    49,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1000,
    1024,
    1536,
    2304,
    3072,
    4096,
    16384,
    30522,
    50257,
    393216,
)


def cases() -> Iterator[Case]:
    """Yields the cases of reductions, sorting and scans."""
    yield from _of(torch.float32, 0)
    yield from _of(torch.bfloat16, 2)
    yield from _scans()


def _of(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    for outer in _OUTER:
        for inner in _INNER:
            if outer * inner > 1 << 26:
                continue
            shape = (outer, inner)
            for dims, level in (([0], 0), ([-1], 1)):
                for keep in (True, False):
                    build: Build = lambda pool, s=shape, d=dims, k=keep: (pool(*s, dtype=dtype), d, k)
                    if keep == (dims == [0]):
                        yield Case("sum.dim_IntList", build, rank + level)
                    elif dims == [-1]:
                        yield Case("mean.dim", build, rank + 1)
            if inner in (64, 256, 768, 1024, 3072, 50257):
                build = lambda pool, s=shape: (pool(*s, dtype=dtype), -1, True)
                yield Case("amax.default", lambda pool, s=shape: (pool(*s, dtype=dtype), [-1], True), rank + 2)
                yield Case("argmax.default", build, rank + 1)
                yield Case("max.dim", build, rank + 2)
                for name in ("var_mean", "var", "std"):
                    build = lambda pool, s=shape: (pool(*s, dtype=dtype), [-1])
                    yield Case(f"{name}.correction", build, rank + (3 if name == "var_mean" else 2))
    for power in range(4, 28, 2):
        for name in ("sum", "mean", "max", "min", "any"):
            build = lambda pool, n=1 << power: (pool(n, dtype=dtype),)
            yield Case(f"{name}.default", build, rank + (name not in ("sum", "mean")))
        build = lambda pool, n=1 << power: (pool(n, dtype=dtype), 2)
        yield Case("linalg_vector_norm.default", build, rank + 1)
        yield Case("argmax.default", lambda pool, n=1 << power: (pool(n, dtype=dtype),), rank + 2)
    for batch in (1, 8, 32):
        for channels, side in (
            (64, 56),
            (96, 56),
            (128, 28),
            (256, 28),
            (192, 28),
            (384, 14),
            (512, 14),
            (768, 7),
            (1280, 7),
            (2048, 7),
        ):
            image = (batch, channels, side, side)
            for dims in ([-1, -2], [0, 2, 3], [0]):
                for keep in (True, False):
                    build = lambda pool, s=image, d=dims, k=keep: (pool(*s, dtype=dtype), d, k)
                    yield Case("sum.dim_IntList" if dims != [-1, -2] else "mean.dim", build, rank + (keep is False) * 2)
            last: Build = lambda pool, s=image: (
                pool(s[0], s[2], s[3], s[1], dtype=dtype).permute(0, 3, 1, 2),
                [0, 2, 3],
                True,
            )
            yield Case("sum.dim_IntList", last, rank + 1)
            build = lambda pool, s=image: (pool(*s, dtype=dtype).view(s[0], s[1], -1), [1], False)
            yield Case("sum.dim_IntList", build, rank + 1)
            yield Case("mean.dim", build, rank + 1)
    for batch, heads, length in ((8, 12, 128), (8, 12, 512), (512, 3, 49), (32, 12, 128), (8, 8, 64)):
        build = lambda pool, s=(batch, heads, length, length): (pool(*s, dtype=dtype), [0], True)
        yield Case("sum.dim_IntList", build, rank + 1)


def _scans() -> Iterator[Case]:
    for rows in (1, 8, 32, 128):
        for width in (64, 512, 1024, 4096, 50257):
            for name in ("cumsum", "sort", "argsort"):
                build = lambda pool, s=(rows, width): (pool(*s), -1)
                yield Case(f"{name}.default", build, 2)
            yield Case("cumsum.default", lambda pool, s=(rows, width): (pool.integers(2, *s), -1), 1)
            yield Case("topk.default", lambda pool, s=(rows, width): (pool(*s), min(50, s[1]), -1), 2)
            yield Case("any.default", lambda pool, s=(rows, width): (pool.bools(*s),), 1)
            yield Case("all.default", lambda pool, s=(rows, width): (pool.bools(*s),), 1)
            yield Case("any.dim", lambda pool, s=(rows, width): (pool.bools(*s), -1), 2)
            yield Case("sum.dim_IntList", lambda pool, s=(rows, width): (pool.integers(2, *s), [-1], False), 1)
            yield Case("max.default", lambda pool, s=(rows, width): (pool.integers(2, *s),), 1)
            yield Case("nonzero.default", lambda pool, s=(rows, width): (pool.bools(*s),), 2)
            yield Case("argmax.default", lambda pool, s=(rows, width): (pool.integers(9, *s), -1), 1)
