"""Cases of embeddings, gather, scatter, concatenation, pooling, resizing and losses."""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from unstall.virtual.costs.suite.case import Arguments, Build, Case, Make, TensorPool, image_of, spread

aten = torch.ops.aten
_LARGEST = 1 << 26  # elements
_COUNTS = (1, 8, 16, 64, 128, 512, 1024, 2048, 4096, 8192, 16384)
_TABLES = (
    (2, 768),
    (49, 8),
    (169, 3),
    (197, 768),
    (512, 768),
    (1024, 768),
    (2050, 1024),
    (30522, 768),
    (32128, 512),
    (50257, 768),
    (50265, 1024),
)


def cases() -> Iterator[Case]:
    """Yields the cases of operators that move elements, and of losses."""
    for dtype, rank in ((torch.float32, 0), (torch.bfloat16, 2)):
        for count in _COUNTS:
            for rows, width in _TABLES:
                table = partial(_table, count, rows, width, dtype)
                yield Case("index_select.default", table, rank, hot=())
                yield Case(
                    "embedding_dense_backward.default", partial(_embedding_backward, count, rows, width, dtype), rank
                )
                if width == 768 or rows == 169:
                    yield Case("index.Tensor", partial(_index, count, rows, width, dtype), rank + 1)
                    yield Case(
                        "_index_put_impl_.default", partial(_index_put, count, rows, width, dtype, True), rank + 2
                    )
                    yield Case("index_put_.default", partial(_index_put, count, rows, width, dtype, True), rank + 1)
                    yield Case("index_put_.default", partial(_index_put, count, rows, width, dtype, False), rank + 2)
        yield from _many(dtype, rank)
        yield from _joining(dtype, rank)
        yield from _losses(dtype, rank)
        yield from _pooling(dtype, rank, last=False)
        yield from _pooling(dtype, 2, last=True)
    yield from _pooling(torch.float16, 2, last=True)
    for rows in (1, 8, 32):
        for width in (16, 64, 128, 512, 1024):
            yield Case(
                "gather.default", lambda pool, s=(rows, width): (pool.integers(9, *s), 1, pool.integers(s[1], *s)), 0
            )
            yield Case("gather.default", lambda pool, s=(rows, width): (pool(*s), 1, pool.integers(s[1], *s)), 1)
            build: Build = lambda pool, s=(rows, width): (pool(*s), 1, pool.integers(s[1], *s), pool(*s))
            yield Case("scatter.src", build, 2)
            yield Case("scatter_add.default", build, 2)
            yield Case(
                "index.Tensor",
                lambda pool, s=(rows, width): (pool(*s, 8), [pool.integers(s[0], s[0]), pool.integers(s[1], s[0])]),
                1,
            )


def _many(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    """Yields the cases of many rows, as in graphs: of nodes by the ends of their edges."""
    for count, rows, width in spread(48, (3_000, 3_000_000), (1_000, 3_000_000), (1, 512), most=1 << 50):
        if max(count, rows) * width > _LARGEST:
            continue
        for width_of in {width, 1}:
            given = partial(_table, count, rows, width_of, dtype)
            yield Case("index_select.default", given, rank + 1, hot=())
            yield Case("index.Tensor", partial(_index, count, rows, width_of, dtype), rank + 1)
            for adding in (False, True):
                yield Case("index_put_.default", partial(_index_put, count, rows, width_of, dtype, adding), rank + 1)
            table: Make = lambda pool, n=rows, w=width_of: pool(n, w, dtype=dtype)
            values: Make = lambda pool, n=count, w=width_of: pool(n, w, dtype=dtype)
            at: Make = lambda pool, n=rows, c=count: pool.integers(n, c)
            wide: Make = lambda pool, at=at, w=width_of: at(pool)[:, None].expand(-1, w)
            added: Build = lambda pool, t=table, i=at, v=values: (t(pool), 0, i(pool), v(pool))
            yield Case("index_add_.default", added, rank + 1)
            yield Case("gather.default", lambda pool, t=table, i=wide: (t(pool), 0, i(pool)), rank + 1)
            yield Case(
                "scatter_add_.default", lambda pool, t=table, i=wide, v=values: (t(pool), 0, i(pool), v(pool)), rank + 1
            )
            yield Case(
                "embedding_dense_backward.default", partial(_embedding_backward, count, rows, width_of, dtype), rank + 1
            )


def _table(count: int, rows: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(rows, width, dtype=dtype), 0, pool.integers(rows, count)


def _embedding_backward(count: int, rows: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(count, width, dtype=dtype), pool.integers(rows, count), rows, -1, False


def _index(count: int, rows: int, width: int, dtype: torch.dtype, pool: TensorPool) -> Arguments:
    return pool(rows, width, dtype=dtype), [pool.integers(rows, count)]


def _index_put(count: int, rows: int, width: int, dtype: torch.dtype, add: bool, pool: TensorPool) -> Arguments:
    return pool(rows, width, dtype=dtype), [pool.integers(rows, count)], pool(count, width, dtype=dtype), add


def _joining(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    for batch in (1, 8, 32):
        for length in (1, 49, 196, 512):
            for width in (192, 384, 768, 1024):
                build: Build = lambda pool, b=batch, t=length, w=width: (
                    [pool(b, 1, w, dtype=dtype), pool(b, t, w, dtype=dtype)],
                    1,
                )
                yield Case("cat.default", build, rank)
                build = lambda pool, b=batch, t=length, w=width: ([pool(b, t, w, dtype=dtype) for _ in range(3)], 2)
                yield Case("cat.default", build, rank)
        for heads, width in ((12, 64), (32, 128), (8, 64)):
            for length in (16, 128, 512):
                halves: Build = lambda pool, s=(batch, heads, length, width // 2): (
                    [pool(*s, dtype=dtype), pool(*s, dtype=dtype)],
                    -1,
                )
                yield Case("cat.default", halves, rank + 1)
                strided: Build = lambda pool, s=(batch, heads, length, width): (
                    [pool(*s, dtype=dtype)[..., s[3] // 2 :], pool(*s, dtype=dtype)[..., : s[3] // 2]],
                    -1,
                )
                yield Case("cat.default", strided, rank + 1)
                cache: Build = lambda pool, s=(batch, heads, length, width): (
                    [pool(*s, dtype=dtype), pool(s[0], s[1], 1, s[3], dtype=dtype)],
                    2,
                )
                yield Case("cat.default", cache, rank + 1)
        for channels, side in ((64, 56), (256, 14), (512, 7)):
            for count in (2, 4, 8):
                build = lambda pool, s=(batch, channels, side, side), c=count: (
                    [pool(*s, dtype=dtype) for _ in range(c)],
                    1,
                )
                yield Case("cat.default", build, rank + 1)
    for batch in (1, 8, 32):
        for heads in (5, 6, 8, 12, 16):
            for length in (1, 16, 32, 64, 128, 200, 256, 512, 1024, 1500):
                for width in (32, 64, 128):
                    if batch * heads * length * width > 1 << 25:
                        continue
                    for fused in (False, True):
                        build = partial(_first_cached, batch, heads, length, width, fused, dtype)
                        yield Case("cat.default", build, rank + (width != 64), hot=())
    for count in (2, 16, 64, 128, 200):
        for size in (1, 256, 65536):
            yield Case(
                "cat.default", lambda pool, c=count, n=size: ([pool(n, dtype=dtype) for _ in range(c)], 0), rank + 2
            )
    for batch, side, width in ((1, 56, 96), (8, 56, 96), (8, 28, 192), (8, 14, 384), (32, 56, 96), (32, 14, 384)):
        build = lambda pool, s=(batch, side, side, width): (pool(*s, dtype=dtype), [3], [1])
        yield Case("roll.default", build, rank + 1)
        build = lambda pool, s=(batch, side, side, width): (pool(*s, dtype=dtype), [0, 0, 0, 3, 0, 3], 0.0)
        yield Case("constant_pad_nd.default", build, rank + 3)


def _first_cached(
    batch: int, heads: int, length: int, width: int, fused: bool, dtype: torch.dtype, pool: TensorPool
) -> Arguments:
    """Returns the arguments of the concatenation that puts the first keys into an empty KV cache.
    If `fused`, the keys are a slice of one projection that has queries, keys and values.
    """
    columns = heads * width
    rows = pool(batch, length, 3 * columns if fused else columns, dtype=dtype)
    keys = rows[..., :columns].view(batch, length, heads, width).transpose(1, 2)
    return [torch.empty(0, dtype=dtype, device=pool.device), keys], -2


def _losses(dtype: torch.dtype, rank: int) -> Iterator[Case]:
    for rows in (1, 8, 16, 32, 128, 512, 1024, 4096, 8192, 16384):
        for classes in (2, 10, 1000, 30522, 50257):
            if rows * classes > 1 << 27:
                continue
            target: Build = lambda pool, r=rows, c=classes: (
                pool(r, c, dtype=dtype),
                pool.integers(c, r),
                None,
                1,
                -100,
            )
            yield Case("nll_loss_forward.default", target, rank)
            backward: Build = lambda pool, r=rows, c=classes: (
                pool(dtype=dtype),
                pool(r, c, dtype=dtype),
                pool.integers(c, r),
                None,
                1,
                -100,
                pool(dtype=dtype),
            )
            yield Case("nll_loss_backward.default", backward, rank)
    for power in range(4, 25, 4):
        pair: Build = lambda pool, n=1 << power: (pool(n, dtype=dtype), pool(n, dtype=dtype), 1)
        yield Case("mse_loss.default", pair, rank + 1)
        yield Case(
            "smooth_l1_loss.default",
            lambda pool, n=1 << power: (pool(n, dtype=dtype), pool(n, dtype=dtype), 0),
            rank + 3,
        )
        grads: Build = lambda pool, n=1 << power: (pool(dtype=dtype), pool(n, dtype=dtype), pool(n, dtype=dtype), 1)
        yield Case("mse_loss_backward.default", grads, rank + 1)


def _pooling(dtype: torch.dtype, rank: int, last: bool) -> Iterator[Case]:
    """Yields the cases of pools and of resizing. If `last`, the channels are the last in memory."""
    image = partial(image_of, dtype, last)
    for batch in (1, 8, 32):
        for channels, side in ((32, 112), (64, 112), (64, 56), (128, 56), (256, 28), (512, 14)):
            x: Build = lambda pool, s=(batch, channels, side, side): (image(s, pool), [3, 3], [2, 2], [1, 1])
            yield Case("max_pool2d_with_indices.default", x, rank)
            back: Build = lambda pool, s=(batch, channels, side, side): _max_backward(s, image, pool)
            yield Case("max_pool2d_with_indices_backward.default", back, rank)
            yield Case("avg_pool2d.default", x, rank + 1)
            resize: Build = lambda pool, s=(batch, channels, side, side): (
                image(s, pool),
                [2 * s[2], 2 * s[3]],
                False,
            )
            yield Case("upsample_bilinear2d.default", resize, rank + 1)
            near: Build = lambda pool, s=(batch, channels, side, side): (image(s, pool), [2 * s[2], 2 * s[3]])
            yield Case("upsample_nearest2d.default", near, rank + 2)
        for channels in (320, 512, 960, 1280, 2048):
            single: Build = lambda pool, s=(batch, channels, 7, 7): (image(s, pool), [1, 1])
            yield Case("_adaptive_avg_pool2d.default", single, rank + 1)


def _max_backward(
    shape: tuple[int, ...], image: Callable[[tuple[int, ...], TensorPool], torch.Tensor], pool: TensorPool
) -> Arguments:
    x = image(shape, pool)
    out, indices = aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])
    return image(tuple(out.shape), pool), x, [3, 3], [2, 2], [1, 1], [1, 1], False, indices
