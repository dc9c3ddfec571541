"""Cases of operators on images, volumes and lines: resizing, sampling, pools, padding, and losses of each pixel."""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Iterator

import torch

from unstall.virtual.costs.suite.case import Calls, Case, Make, TensorPool, cases_of, spread

_IMAGES = (
    (2, 3, 40, 48), (8, 16, 28, 28), (16, 64, 14, 14), (8, 48, 56, 56), (24, 24, 100, 100), (2, 3, 500, 640),
    (24, 40, 72, 72), (4, 96, 112, 112), (48, 8, 90, 120),
    *spread(24, (1, 64), (1, 512), (14, 256), (14, 256), most=6_000_000),
)  # fmt: skip
_UPWARDS = (  # channels, filters, sides, kernel, stride, padding of transposed convolutions
    *(
        (channels, filters, (side, side), kernel, stride, padding)
        for channels, filters, side, kernel, stride, padding in (
            (16, 8, 48, 2, 2, 0), (32, 16, 40, 4, 2, 1), (64, 32, 28, 2, 2, 0), (64, 32, 28, 4, 2, 1),
            (128, 64, 14, 2, 2, 0), (128, 64, 16, 4, 2, 1), (256, 128, 14, 2, 2, 0), (256, 128, 8, 4, 2, 1),
            (512, 256, 7, 2, 2, 0), (512, 256, 4, 4, 2, 1), (100, 256, 1, 4, 1, 0), (64, 3, 32, 4, 2, 1),
            (96, 48, 24, 3, 2, 1), (48, 24, 96, 2, 2, 0), (24, 12, 80, 4, 2, 1),
        )
    ),
    (32, 16, (500,), 4, 2, 1), (64, 32, (3_000,), 4, 2, 1), (256, 128, (100,), 16, 8, 4), (128, 64, (800,), 8, 4, 2),
    (32, 16, (8, 20, 20), 2, 2, 0), (16, 8, (12, 40, 40), 2, 2, 0), (64, 32, (4, 12, 12), 4, 2, 1),
    *(
        (8 * channels, 8 * filters, (side, side), kernel, 2, (kernel - 1) // 2)
        for at, (channels, filters, side) in enumerate(spread(40, (1, 64), (1, 32), (4, 80)))
        for kernel in (2 + at % 3,)
    ),
    *(
        (8 * channels, 8 * filters, (side, side, side), kernel, 2, (kernel - 1) // 2)
        for at, (channels, filters, side) in enumerate(spread(12, (1, 16), (1, 8), (4, 24)))
        for kernel in (2 + at % 3,)
    ),
)  # fmt: skip
_VOLUMES = (
    (1, 4, 8, 24, 24), (2, 8, 12, 40, 40), (6, 32, 8, 28, 28),
    *spread(12, (1, 16), (1, 64), (6, 40), (8, 64), (8, 64), most=4_000_000),
)  # fmt: skip
_LINES = (
    (4, 8, 200), (16, 24, 1_500), (12, 64, 6_000), *spread(12, (1, 64), (1, 256), (60, 20_000), most=4_000_000)
)  # fmt: skip
_TWO, _NOUGHT, _AROUND = [2, 2, 2], [0, 0, 0], [1] * 6


def cases() -> Iterator[Case]:
    """Yields the cases of these operators."""
    yield from cases_of(_images, _upwards, _volumes, _lines, rank=2)


def _images() -> Calls:
    for shape in _IMAGES:
        n, c, h, w = shape
        x: Make = lambda pool, s=shape: pool(*s)
        for scale in (0.5, 2.0):
            out = int(h * scale), int(w * scale)
            if n * c * out[0] * out[1] > 20_000_000:
                continue
            gradient: Make = lambda pool, s=(n, c, *out): pool(*s)
            for name in (
                "upsample_bilinear2d",
                "upsample_bicubic2d",
                "_upsample_bilinear2d_aa",
                "_upsample_bicubic2d_aa",
            ):
                yield f"{name}.default", lambda pool, x=x, o=out: (x(pool), o, False)
                yield f"{name}_backward.default", lambda pool, g=gradient, o=out, s=shape: (g(pool), o, s, False)
            for name in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
                yield f"{name}.default", lambda pool, x=x, o=out: (x(pool), o)
                yield f"{name}_backward.default", lambda pool, g=gradient, o=out, s=shape: (g(pool), o, s)
        grid: Make = lambda pool, s=shape: _warped(pool, s[0], s[2], s[3])
        for mode in (0, 1):
            yield "grid_sampler_2d.default", lambda pool, x=x, g=grid, m=mode: (x(pool), g(pool), m, 0, False)
            yield (
                "grid_sampler_2d_backward.default",
                lambda pool, x=x, g=grid, m=mode: (x(pool), x(pool), g(pool), m, 0, False, [True, False]),
            )
        yield "cudnn_grid_sampler.default", lambda pool, x=x, g=grid: (x(pool), g(pool))
        yield "cudnn_grid_sampler_backward.default", lambda pool, x=x, g=grid: (x(pool), g(pool), x(pool))
        half = (n, c, h // 2, w // 2)
        pooled: Make = lambda pool, s=half: pool(*s)
        yield (
            "avg_pool2d_backward.default",
            lambda pool, p=pooled, x=x: (p(pool), x(pool), [2, 2], [2, 2], [0, 0], False, True, None),
        )
        for side in (1, 2, 5, 7):
            yield "_adaptive_avg_pool2d.default", lambda pool, x=x, side=side: (x(pool), [side, side])
            yield "_adaptive_avg_pool2d_backward.default", lambda pool, x=x, s=(n, c, side, side): (pool(*s), x(pool))
            yield "adaptive_max_pool2d.default", lambda pool, x=x, side=side: (x(pool), [side, side])
            yield (
                "adaptive_max_pool2d_backward.default",
                lambda pool, x=x, s=(n, c, side, side): (pool(*s), x(pool), pool.integers(4, *s)),
            )
        sample: Make = lambda pool, s=(n, c, 2): pool.zeros(*s) + 0.5
        few = h // 3, w // 3
        yield "fractional_max_pool2d.default", lambda pool, x=x, r=sample, o=few: (x(pool), [2, 2], o, r(pool))
        yield (
            "fractional_max_pool2d_backward.default",
            lambda pool, x=x, s=(n, c, *few): (pool(*s), x(pool), [2, 2], s[2:], pool.integers(4, *s)),
        )
        wider = (n, c, h + 6, w + 6)
        for name in ("reflection_pad2d", "replication_pad2d"):
            yield f"{name}.default", lambda pool, x=x: (x(pool), [3, 3, 3, 3])
            yield f"{name}_backward.default", lambda pool, x=x, s=wider: (pool(*s), x(pool), [3, 3, 3, 3])
        if n * c * h * w < 3_000_000:
            column = ([3, 3], [1, 1], [1, 1], [1, 1])
            yield "im2col.default", lambda pool, s=shape, a=column: (pool(1, *s[1:]), *a)
            yield "col2im.default", lambda pool, s=shape, a=column: (pool(s[0], 9 * s[1], s[2] * s[3]), s[2:], *a)
        yield "flip.default", lambda pool, x=x: (x(pool), [3])
        labels: Make = lambda pool, s=shape: pool.integers(s[1], s[0], s[2], s[3])
        yield "nll_loss2d_forward.default", lambda pool, x=x, t=labels: (x(pool), t(pool), None, 1, -100)
        yield (
            "nll_loss2d_backward.default",
            lambda pool, x=x, t=labels: (pool.zeros(1)[0], x(pool), t(pool), None, 1, -100, pool.zeros(1)[0] + 1),
        )
        yield "_softmax.default", lambda pool, x=x: (x(pool), 1, False)
        yield "_log_softmax.default", lambda pool, x=x: (x(pool), 1, False)
        yield "cumsum.default", lambda pool, x=x: (x(pool), 1)


def _warped(pool: TensorPool, batch: int, high: int, wide: int) -> torch.Tensor:
    """Returns where each pixel of warped images lies: near its neighbours, as in programs, and a bit off its place."""
    down, along = (torch.linspace(-1, 1, size, device=pool.device) for size in (high, wide))
    place = torch.stack(torch.meshgrid(along, down, indexing="xy"), -1)
    return place.expand(batch, high, wide, 2) * 0.9 + pool(batch, 1, 1, 2) * 0.05


def _upwards() -> Calls:
    for channels, filters, sides, kernel, stride, padding in _UPWARDS:
        out = tuple((side - 1) * stride - 2 * padding + kernel for side in sides)
        rank = len(sides)
        how = [stride] * rank, [padding] * rank, [1] * rank, True, [0] * rank, 1
        for batch in (2, 8, 24):
            for dtype in (torch.float32, torch.bfloat16):
                x: Make = lambda pool, s=(batch, channels, *sides), t=dtype: pool(*s, dtype=t)
                weight: Make = lambda pool, s=(channels, filters, *[kernel] * rank), t=dtype: pool(*s, dtype=t)
                yield (
                    "convolution.default",
                    lambda pool, x=x, w=weight, n=filters, t=dtype, how=how: (x(pool), w(pool), pool(n, dtype=t), *how),
                )
                yield (
                    "convolution_backward.default",
                    lambda pool, x=x, w=weight, s=(batch, filters, *out), t=dtype, how=how: (
                        pool(*s, dtype=t), x(pool), w(pool), [s[1]], *how, [True, True, True]
                    ),
                )  # fmt: skip


def _volumes() -> Calls:
    for shape in _VOLUMES:
        n, c, *sides = shape
        x: Make = lambda pool, s=shape: pool(*s)
        half, double = (n, c, *(side // 2 for side in sides)), (n, c, *(side * 2 for side in sides))
        yield "avg_pool3d.default", lambda pool, x=x: (x(pool), _TWO, _TWO)
        yield (
            "avg_pool3d_backward.default",
            lambda pool, x=x, s=half: (pool(*s), x(pool), _TWO, _TWO, _NOUGHT, False, True, None),
        )
        yield "max_pool3d_with_indices.default", lambda pool, x=x: (x(pool), _TWO, _TWO)
        yield (
            "max_pool3d_with_indices_backward.default",
            lambda pool, x=x, s=half: (pool(*s), x(pool), _TWO, _TWO, _NOUGHT, [1, 1, 1], False, pool.integers(4, *s)),
        )
        for side in (1, 3, 4):
            few, out = (n, c, side, side, side), [side] * 3
            yield "_adaptive_avg_pool3d.default", lambda pool, x=x, o=out: (x(pool), o)
            yield "_adaptive_avg_pool3d_backward.default", lambda pool, x=x, s=few: (pool(*s), x(pool))
            yield "adaptive_max_pool3d.default", lambda pool, x=x, o=out: (x(pool), o)
            yield (
                "adaptive_max_pool3d_backward.default",
                lambda pool, x=x, s=few: (pool(*s), x(pool), pool.integers(4, *s)),
            )
        wider = (n, c, *(side + 2 for side in sides))
        yield "reflection_pad3d.default", lambda pool, x=x: (x(pool), _AROUND)
        yield "replication_pad3d.default", lambda pool, x=x: (x(pool), _AROUND)
        yield "replication_pad3d_backward.default", lambda pool, x=x, s=wider: (pool(*s), x(pool), _AROUND)
        yield "upsample_trilinear3d.default", lambda pool, x=x, o=double[2:]: (x(pool), o, False)
        yield (
            "upsample_trilinear3d_backward.default",
            lambda pool, s=shape, o=double: (pool(*o), o[2:], s, False),
        )


def _lines() -> Calls:
    for shape in _LINES:
        n, c, length = shape
        x: Make = lambda pool, s=shape: pool(*s)
        yield "reflection_pad1d.default", lambda pool, x=x: (x(pool), [3, 3])
        yield "reflection_pad1d_backward.default", lambda pool, x=x, s=(n, c, length + 6): (pool(*s), x(pool), [3, 3])
        yield "upsample_linear1d.default", lambda pool, x=x, s=shape: (x(pool), [2 * s[2]], False)
        yield (
            "upsample_linear1d_backward.default",
            lambda pool, s=shape: (pool(s[0], s[1], 2 * s[2]), [2 * s[2]], s, False),
        )
        frames = (length - 40) // 20 + 1
        yield "unfold_backward.default", lambda pool, s=shape, f=frames: (pool(s[0], s[1], f, 40), s, 2, 40, 20)
