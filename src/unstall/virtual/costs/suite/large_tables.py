"""Cases that use a small part of what they are given: elements of tables that no cache holds, few pixels of large
images, and searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from unstall.virtual.costs.suite.case import Arguments, Calls, Case, TensorPool, cases_of, spread

_MOST = 1 << 26


def cases() -> Iterator[Case]:
    yield from cases_of(partial(_elements, torch.float32), partial(_rows, torch.float32), _pixels, _searches, rank=1)
    yield from cases_of(partial(_elements, torch.bfloat16), partial(_rows, torch.bfloat16), rank=3)


def _elements(dtype: torch.dtype) -> Calls:
    for count, size in spread(40, (256, 1 << 24), (1 << 12, _MOST), most=1 << 60, seed=f"elements {dtype}"):

        def table(pool: TensorPool, size: int = size) -> torch.Tensor:
            return pool(size, dtype=dtype)

        def given(pool: TensorPool, count: int = count) -> torch.Tensor:
            return pool(count, dtype=dtype)

        def at(pool: TensorPool, count: int = count, size: int = size) -> torch.Tensor:
            return pool.integers(size, count)

        yield "index.Tensor", lambda pool, x=table, i=at: (x(pool), [i(pool)])
        yield "index_select.default", lambda pool, x=table, i=at: (x(pool), 0, i(pool))
        yield "gather.default", lambda pool, x=table, i=at: (x(pool), 0, i(pool))
        yield "take.default", lambda pool, x=table, i=at: (x(pool), i(pool))
        for adds in (False, True):
            yield "index_put_.default", lambda pool, x=table, i=at, y=given, a=adds: (x(pool), [i(pool)], y(pool), a)
        for operator in ("scatter_.src", "scatter_add_.default", "index_add_.default", "index_copy_.default"):
            yield operator, lambda pool, x=table, i=at, y=given: (x(pool), 0, i(pool), y(pool))
        yield "index_fill_.int_Scalar", lambda pool, x=table, i=at: (x(pool), 0, i(pool), 1.0)


def _rows(dtype: torch.dtype) -> Calls:
    for count, rows, width in spread(
        60, (8, 1 << 20), (1 << 8, 1 << 22), (2, 1 << 14), most=1 << 60, seed=f"rows {dtype}"
    ):
        if max(rows, count) * width > _MOST:
            continue

        def table(pool: TensorPool, rows: int = rows, width: int = width) -> torch.Tensor:
            return pool(rows, width, dtype=dtype)

        def given(pool: TensorPool, count: int = count, width: int = width) -> torch.Tensor:
            return pool(count, width, dtype=dtype)

        def at(pool: TensorPool, count: int = count, rows: int = rows) -> torch.Tensor:
            return pool.integers(rows, count)

        yield "index.Tensor", lambda pool, x=table, i=at: (x(pool), [i(pool)])
        yield "index_select.default", lambda pool, x=table, i=at: (x(pool), 0, i(pool))
        for adds in (False, True):
            yield "index_put_.default", lambda pool, x=table, i=at, y=given, a=adds: (x(pool), [i(pool)], y(pool), a)
        for operator in ("index_add_.default", "index_copy_.default"):
            yield operator, lambda pool, x=table, i=at, y=given: (x(pool), 0, i(pool), y(pool))
        yield "index_fill_.int_Scalar", lambda pool, x=table, i=at: (x(pool), 0, i(pool), 1.0)


def _pixels() -> Calls:
    for batch, channels, edge, small in spread(24, (1, 8), (1, 64), (256, 8192), (8, 512), most=1 << 60, seed="pixels"):
        if batch * channels * edge * edge > _MOST or small > edge:
            continue
        shape, size = (batch, channels, edge, edge), [small, small]
        yield "upsample_bilinear2d.default", lambda pool, s=shape, n=size: (pool(*s), n, False)
        yield "upsample_bicubic2d.default", lambda pool, s=shape, n=size: (pool(*s), n, False)
        yield "upsample_nearest2d.default", lambda pool, s=shape, n=size: (pool(*s), n)

        def sampled(pool: TensorPool, s: tuple[int, ...] = shape, n: int = small) -> Arguments:
            return pool(*s), pool(s[0], n, n, 2).clamp_(-1, 1), 0, 0, False

        yield "grid_sampler_2d.default", sampled


def _searches() -> Calls:
    for count, size in spread(20, (16, 1 << 22), (1 << 8, _MOST), most=1 << 60, seed="searches"):
        yield (
            "searchsorted.Tensor",
            lambda pool, s=size, n=count: (torch.arange(s, device=pool.device).float(), pool(n)),
        )
        yield "bucketize.Tensor", lambda pool, s=size, n=count: (pool(n), torch.arange(s, device=pool.device).float())
    for rows, width in spread(24, (1, 64), (1 << 12, 1 << 24), most=1 << 26, seed="order"):
        yield "kthvalue.default", lambda pool, r=rows, w=width: (pool(r, w), max(w // 3, 1))
        yield "median.dim", lambda pool, r=rows, w=width: (pool(r, w), 1)
        yield "mode.default", lambda pool, r=rows, w=width: (pool(r, min(w, 1 << 16)), 1)
