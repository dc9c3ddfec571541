"""Cases of scaled dot-product attention, with the kernels that torch chooses: efficient for
float32, flash for half precision; also with those of cuDNN.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

import torch

from unstall.virtual.costs.suite.case import Arguments, Case, TensorPool, spread

Options: TypeAlias = tuple[int, int, int | tuple[int, int], int, torch.dtype, str, bool, bool, float]
"""A call of attention: `(batch, heads, length, width, dtype, backend, causal, masked, drop)`.
`length` is one for queries and keys, or a pair of both. `width` is that of a head. `drop` is the
dropout probability.
"""
_LENGTHS = (1, 7, 16, 32, 49, 64, 77, 100, 128, 160, 197, 200, 256, 300, 384, 512, 577, 768, 1024, 1500, 2048)
_CROSSED = (
    (1, 32),
    (1, 64),
    (1, 128),
    (1, 256),
    (1, 512),
    (1, 1024),
    (1, 1500),
    (4, 1500),
    (32, 1500),
    (64, 1500),
    (100, 784),
    (32, 128),
    (64, 256),
    (128, 64),
    (196, 49),
    (784, 49),
    (3136, 49),
)
_BATCHES = ((1, 1), (1, 8), (1, 12), (1, 16), (8, 3), (8, 6), (8, 12), (8, 16), (32, 8), (32, 12), (256, 4), (512, 3))


def cases() -> Iterator[Case]:
    """Yields the cases of attention."""
    for dtype, backend in ((torch.float32, "efficient"), (torch.bfloat16, "flash"), (torch.float16, "flash")):
        rank = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 3}[dtype]
        for batch, heads in _BATCHES:
            for length in _LENGTHS:
                for width in (32, 64, 80, 96, 128):
                    elements = batch * heads * length
                    if elements * length > 1 << 28 or elements * width > 1 << 25:
                        continue
                    likely = width in (32, 64) or (width == 128 and batch == 1)
                    gflop = 4e-9 * elements * length * width
                    for causal, masked, drop in (
                        (False, False, 0.0),
                        (True, False, 0.0),
                        (False, True, 0.0),
                        (False, False, 0.1),
                        (True, False, 0.1),
                        (False, True, 0.1),
                    ):
                        if masked and backend == "flash":
                            continue
                        if (causal or masked) and (length == 1 or width in (80, 96) or batch * heads in (8, 16, 24)):
                            continue
                        options = (batch, heads, length, width, dtype, backend, causal, masked, drop)
                        level = rank + (not likely) + (drop > 0 and width != 64)
                        if drop == 0 and backend == "efficient":
                            build = partial(_forward, options, False)
                            yield Case(
                                f"_scaled_dot_product_{backend}_attention.default", build, rank=level, gflop=gflop
                            )
                        build = partial(_forward, options, True)
                        yield Case(f"_scaled_dot_product_{backend}_attention.default", build, rank=level, gflop=gflop)
                        build = partial(_backward, options)
                        yield Case(
                            f"_scaled_dot_product_{backend}_attention_backward.default",
                            build,
                            rank=level,
                            gflop=2.5 * gflop,
                        )

    for dtype, backend in ((torch.float32, "efficient"), (torch.bfloat16, "flash")):
        for batch, heads in ((1, 1), (1, 6), (1, 8), (1, 12), (8, 6), (8, 8), (8, 12), (32, 6), (32, 12)):
            for length, others in _CROSSED:
                for width in (32, 64, 128):
                    rank = (0 if dtype == torch.float32 else 2) + (width != 64)
                    crossed = (batch, heads, (length, others), width, dtype, backend, False, False, 0.0)
                    gflop = 4e-9 * batch * heads * length * others * width
                    name = f"_scaled_dot_product_{backend}_attention"
                    yield Case(f"{name}.default", partial(_forward, crossed, backend == "efficient"), rank, gflop=gflop)
                    if backend == "efficient":
                        yield Case(f"{name}.default", partial(_forward, crossed, False), rank, gflop=gflop)
                    yield Case(f"{name}_backward.default", partial(_backward, crossed), rank, gflop=2.5 * gflop)
    yield from _half()


def _half() -> Iterator[Case]:
    """Yields the cases of half precision with cuDNN, which torch chooses on a Hopper, and with the efficient kernels,
    which it chooses for masks elsewhere; those of one query are as in generating text.
    """
    for batch, heads in ((1, 8), (1, 16), (8, 8), (8, 12), (32, 12)):
        for length in (64, 128, 256, 512, 1024):
            for width in (64, 128):
                for causal in (False, True):
                    usual: Options = (batch, heads, length, width, torch.bfloat16, "cudnn", causal, False, 0.0)
                    yield from _both_ways(usual, 1 + (batch == 32 or width == 128))
    kinds = (False, False, 0.0), (True, False, 0.0), (False, True, 0.0), (False, False, 0.1)
    for backend, dtype, count in (("cudnn", torch.bfloat16, 144), ("efficient", torch.float16, 56)):
        for at, (causal, masked, drop) in enumerate(kinds):
            what = f"{backend} {at}"
            draws = spread(count, (1, 32), (1, 32), (16, 4_096), (4, 16), most=1 << 20, seed=what)
            for number, (batch, heads, length, width) in enumerate(draws):
                if batch * heads * length**2 > 1 << 29:
                    continue
                lengths = length if causal or number % 3 else (length, max(length // (number % 5 + 1), 8))
                drawn: Options = (batch, heads, lengths, 8 * width, dtype, backend, causal, masked, drop)
                yield from _both_ways(drawn, 2)
        for batch, heads, others, width in spread(count, (1, 64), (4, 32), (16, 8_192), (4, 16), seed=f"{backend} one"):
            one: Options = (batch, heads, (1, others), 8 * width, dtype, backend, False, False, 0.0)
            yield Case(f"_scaled_dot_product_{backend}_attention.default", partial(_forward, one, False), 2)


def _both_ways(options: Options, rank: int) -> Iterator[Case]:
    """Yields a forward in inference, one in training, and the backward of a call."""
    batch, heads, length, width, _, backend, *_ = options
    queries, keys = _lengths(length)
    gflop = 4e-9 * batch * heads * queries * keys * width
    name = f"_scaled_dot_product_{backend}_attention"
    if options[-1] == 0.0:
        yield Case(f"{name}.default", partial(_forward, options, False), rank, gflop=gflop)
    yield Case(f"{name}.default", partial(_forward, options, True), rank, gflop=gflop)
    yield Case(f"{name}_backward.default", partial(_backward, options), rank, gflop=2.5 * gflop)


def _lengths(length: int | tuple[int, int]) -> tuple[int, int]:
    """Returns the numbers of queries and of keys."""
    return length if isinstance(length, tuple) else (length, length)


def _tensors(options: Options, pool: TensorPool) -> list[torch.Tensor]:
    batch, heads, length, width, dtype, *_ = options
    first, others = _lengths(length)
    return [pool(batch, size, heads, width, dtype=dtype).transpose(1, 2) for size in (first, others, others)]


def _mask(options: Options, pool: TensorPool) -> torch.Tensor | None:
    batch, heads, length, _, dtype, _, _, masked, _ = options
    if not masked:
        return None
    queries, keys = _lengths(length)
    padded = -(-keys // 16) * 16
    return pool(batch, 1, queries, padded, dtype=dtype)[..., :keys].expand(batch, heads, queries, keys)


def _forward(options: Options, training: bool, pool: TensorPool) -> Arguments:
    *_, backend, causal, _, drop = options
    query, key, value = _tensors(options, pool)
    if backend == "efficient":
        return query, key, value, _mask(options, pool), training, drop, causal
    if backend == "cudnn":
        return query, key, value, _mask(options, pool), training, drop, causal, False
    return query, key, value, drop, causal


def _backward(options: Options, pool: TensorPool) -> Arguments:
    *_, backend, causal, _, drop = options
    query, key, value = _tensors(options, pool)
    mask = _mask(options, pool)
    gradient = _tensors(options, pool)[0]
    aten = torch.ops.aten
    if backend == "efficient":
        forward = aten._scaled_dot_product_efficient_attention.default
        out, logsumexp, seed, offset = forward(query, key, value, mask, True, drop, causal)
        wanted = [True, True, True, False]
        return gradient, query, key, value, mask, out, logsumexp, seed, offset, drop, wanted, causal
    if backend == "cudnn":
        forward = aten._scaled_dot_product_cudnn_attention.default
        out, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward(
            query, key, value, mask, True, drop, causal, False
        )
        kept = (query, key, value, out, logsumexp, seed, offset, mask, cum_q, cum_k, max_q, max_k)
        return gradient, *kept, drop, causal
    forward = aten._scaled_dot_product_flash_attention.default
    out, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward(query, key, value, drop, causal)
    return gradient, query, key, value, out, logsumexp, cum_q, cum_k, max_q, max_k, drop, causal, seed, offset
