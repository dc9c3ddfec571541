"""Cases of scans, losses, random numbers, searches, and of other operators that are not element-wise."""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Iterator

import torch

from unstall.virtual.costs.suite.case import Build, Calls, Case, Make, cases_of, spread

_COUNTS = (100, 1_100, 3_000, 9_000, 20_000, 60_000, 150_000, 330_000, 700_000, 1_500_000, 3_000_000, 9_000_000)
_TABLES = (
    (64, 50), (300, 700), (12, 9_000), (5_000, 30), (3_000, 600), (600, 6_000), (40, 100_000), (3_000, 3_000),
    *spread(32, (4, 100_000), (4, 100_000), most=12_000_000),
)  # fmt: skip
_HALF = torch.bfloat16


def cases() -> Iterator[Case]:
    """Yields the cases of these operators."""
    yield from cases_of(_along, _rows, _flat, _losses, _random, _cells, _searching, _attention, rank=2)


def _along() -> Calls:
    for shape in _TABLES:
        x: Make = lambda pool, s=shape: pool(*s)
        whole: Make = lambda pool, s=shape: pool.integers(50, *s)
        for dim in (0, 1):
            for operator in (
                "cumsum.default",
                "cumprod.default",
                "_logcumsumexp.default",
                "median.dim",
                "nanmedian.dim",
            ):
                yield operator, lambda pool, x=x, d=dim: (x(pool), d)
            yield "sort.stable", lambda pool, x=x, d=dim: (x(pool), {"stable": False, "dim": d})
            yield (
                "_cummax_helper.default",
                lambda pool, x=x, d=dim, s=shape: (x(pool), pool(*s), pool.zeros(*s, dtype=torch.int64), d),
            )
            yield "kthvalue.default", lambda pool, x=x, d=dim: (x(pool), 2, d)
            if shape[dim] < 10_000 and shape[1 - dim] < 1_000:
                yield "mode.default", lambda pool, whole=whole, d=dim: (whole(pool), d)
                yield "mode.default", lambda pool, x=x, d=dim: (x(pool), d)
            yield "renorm.default", lambda pool, x=x, d=dim: (x(pool), 2, d, 1.0)
            yield "flip.default", lambda pool, x=x, d=dim: (x(pool), [d])
            yield "roll.default", lambda pool, x=x, d=dim: (x(pool), [1], [d])
            for share in (1, 20):
                some = max(shape[0] // share, 1), shape[1]
                where: Make = lambda pool, n=shape[dim], s=some: pool.integers(n, *s)
                yield "scatter_.value", lambda pool, x=x, d=dim, i=where: (x(pool), d, i(pool), 1.0)
                for operator in ("scatter_.src", "scatter_add_.default"):
                    yield operator, lambda pool, x=x, d=dim, i=where, s=some: (x(pool), d, i(pool), pool(*s))
            count = shape[dim] // 2 + 1
            rows = tuple(count if at == dim else size for at, size in enumerate(shape))
            index: Make = lambda pool, n=shape[dim], c=count: pool.integers(n, c)
            for operator in ("index_copy.default", "index_add.default"):
                yield (
                    operator,
                    lambda pool, x=x, d=dim, i=index, r=rows: (x(pool), d, i(pool), pool(*r)),
                )
            yield "index_fill_.int_Scalar", lambda pool, x=x, d=dim, i=index: (x(pool), d, i(pool), 1.0)
            yield (
                "index_reduce.default",
                lambda pool, x=x, d=dim, i=index, r=rows: (x(pool), d, i(pool), pool(*r), "amax"),
            )
            for reduce in ("sum", "amax", "mean", "prod"):
                yield (
                    "scatter_reduce.two",
                    lambda pool, x=x, d=dim, s=shape, how=reduce: (x(pool), d, pool.integers(s[d], *s), x(pool), how),
                )
            yield (
                "scatter_add.default",
                lambda pool, x=x, d=dim, s=shape: (x(pool), d, pool.integers(s[d], *s), x(pool)),
            )
            yield "gather.default", lambda pool, x=x, d=dim, s=shape: (x(pool), d, pool.integers(s[d], *s))
            for reduction in ("sum.dim_IntList", "mean.dim", "amax.default", "linalg_vector_norm.default"):
                middle = (2, [dim]) if "norm" in reduction else ([dim],)
                yield reduction, lambda pool, x=x, m=middle: (x(pool), *m)
            for reduction in ("var.correction", "std.correction", "var_mean.correction"):
                yield reduction, lambda pool, x=x, d=dim: (x(pool), [d])
            for reduction in ("argmax.default", "max.dim", "prod.dim_int", "any.dim"):
                yield reduction, lambda pool, x=x, d=dim: (x(pool), d)
            yield "count_nonzero.dim_IntList", lambda pool, x=x, d=dim: (x(pool), [d])


def _rows() -> Calls:
    for shape in _TABLES:
        x: Make = lambda pool, s=shape: pool(*s)
        yield "_softmax.default", lambda pool, x=x: (x(pool), 0, False)
        yield "_log_softmax.default", lambda pool, x=x: (x(pool), 0, False)
        yield "_softmax_backward_data.default", lambda pool, x=x: (x(pool), x(pool), 0, torch.float32)
        yield "tril.default", lambda pool, x=x: (x(pool),)
        yield "triu.default", lambda pool, x=x: (x(pool),)
        yield "topk.default", lambda pool, x=x, s=shape: (x(pool), min(20, s[1]))
        even = shape[0], shape[1] // 2 * 2
        yield "glu_backward.default", lambda pool, s=even: (pool(s[0], s[1] // 2), pool(*s), 1)
        yield "_weight_norm_interface.default", lambda pool, s=shape: (pool(*s), pool(s[0], 1))
        yield (
            "_weight_norm_interface_backward.default",
            lambda pool, s=shape: (pool(*s), pool(*s), pool(s[0], 1), pool(s[0], 1), 0),
        )
        yield "_prelu_kernel.default", lambda pool, s=shape: (pool(*s), pool(1, s[1]))
        yield "_prelu_kernel_backward.default", lambda pool, s=shape: (pool(*s), pool(*s), pool(1, s[1]))
        for each in (1, 64):
            some = max(shape[0] // each, 1)
            yield (
                "segment_reduce.default",
                lambda pool, n=some, e=each, w=shape[1]: (
                    pool(n * e, w),
                    "sum",
                    {"lengths": pool.zeros(n, dtype=torch.int64) + e, "unsafe": True},
                ),
            )


def _flat() -> Calls:
    for count in _COUNTS:
        for operator in ("median.default", "nanmedian.default", "_unique2.default", "unique_consecutive.default"):
            yield operator, lambda pool, n=count: (pool.integers(1_000, n).float(),)
        yield "_unique2.default", lambda pool, n=count: (pool.integers(1_000, n), True, True, True)
        yield "_unique2.default", lambda pool, n=count: (pool.integers(1_000, n), True, True, False)
        yield "_unique2.default", lambda pool, n=count: (pool.integers(1_000, n),)
        yield "unique_consecutive.default", lambda pool, n=count: (pool.integers(1_000, n),)
        yield "cumsum.default", lambda pool, n=count: (pool(n), 0)
        yield "cumsum.default", lambda pool, n=count: (pool.integers(5, n), 0)
        yield "sort.stable", lambda pool, n=count: (pool(n), {"stable": False, "dim": 0})
        yield "sort.stable", lambda pool, n=count: (pool.integers(5_000, n), {"stable": False, "dim": 0})
        yield "argmax.default", lambda pool, n=count: (pool(n),)
        yield "std.correction", lambda pool, n=count: (pool(n),)
        yield "count_nonzero.dim_IntList", lambda pool, n=count: (pool(n), [0])
        yield "masked_select.default", lambda pool, n=count: (pool(n), pool.bools(n))
        yield "masked_scatter_.default", lambda pool, n=count: (pool(n), pool.bools(n), pool(n))
        yield "nonzero.default", lambda pool, n=count: (pool.bools(n),)
        yield "take.default", lambda pool, n=count: (pool(200_000), pool.integers(200_000, n))
    for rows in (60, 500, 4_000, 20_000, 90_000, 300_000):
        yield "unique_dim.default", lambda pool, n=rows: (pool.integers(4, n, 3), 0)


def _losses() -> Calls:
    for count in _COUNTS:
        inside: Make = lambda pool, n=count: pool(n).sigmoid()
        yield "binary_cross_entropy.default", lambda pool, x=inside: (x(pool), x(pool), None, 0)
        yield "binary_cross_entropy_backward.default", lambda pool, x=inside: (pool.zeros(1)[0], x(pool), x(pool))
        yield "huber_loss.default", lambda pool, n=count: (pool(n), pool(n), 0)
        yield "smooth_l1_loss.default", lambda pool, n=count: (pool(n), pool(n), 0)
        yield "soft_margin_loss.default", lambda pool, n=count: (pool(n), pool(n))
    for rows, width in _TABLES[:6]:
        targets: Make = lambda pool, s=(rows, width): pool.integers(s[1], s[0])
        yield "multi_margin_loss.default", lambda pool, s=(rows, width), t=targets: (pool(*s), t(pool))
        yield (
            "multi_margin_loss_backward.default",
            lambda pool, s=(rows, width), t=targets: (pool.zeros(1)[0], pool(*s), t(pool), 1, 1.0),
        )
        some: Make = lambda pool, s=(rows, width): pool.integers(s[1], *s)
        yield "multilabel_margin_loss_forward.default", lambda pool, s=(rows, width), t=some: (pool(*s), t(pool), 1)
        yield (
            "multilabel_margin_loss_backward.default",
            lambda pool, s=(rows, width), t=some: (pool.zeros(1)[0], pool(*s), t(pool), 1, pool.zeros(*s)),
        )
    for frames, batch, classes, said in (
        (50, 4, 30, 10), (300, 8, 80, 40), (500, 24, 60, 50), *spread(12, (20, 800), (1, 64), (10, 200), (4, 19)),
    ):  # fmt: skip
        lengths = [frames] * batch, [said] * batch
        spoken: Build = lambda pool, s=(frames, batch, classes, said): (
            pool(*s[:3]), 1 + pool.integers(s[2] - 1, s[1], s[3])
        )  # fmt: skip
        yield "_ctc_loss.default", lambda pool, g=spoken, n=lengths: (*g(pool), *n)
        yield (
            "_ctc_loss_backward.default",
            lambda pool, g=spoken, n=lengths, s=(batch, frames, 2 * said + 1): (
                pool.zeros(s[0]), *g(pool), *n, pool.zeros(s[0]), pool(*s), 0
            ),
        )  # fmt: skip


def _random() -> Calls:
    for count in _COUNTS:
        yield "exponential_.default", lambda pool, n=count: (pool(n),)
        yield "bernoulli_.Tensor", lambda pool, n=count: (pool(n), pool(n).sigmoid())
        yield "bernoulli_.float", lambda pool, n=count: (pool(n), 0.5)
        yield "random_.from", lambda pool, n=count: (pool.zeros(n, dtype=torch.int64), 0, 1_000)
        yield "normal_.default", lambda pool, n=count: (pool(n),)
        yield "poisson.default", lambda pool, n=count: (pool(n).abs(),)
        yield "native_dropout.default", lambda pool, n=count: (pool(n), 0.1, True)
        yield "native_dropout.default", lambda pool, n=count: (pool(n, dtype=_HALF), 0.1, True)
        yield "_standard_gamma.default", lambda pool, n=count: (pool(n).abs() + 1,)
        yield "_sample_dirichlet.default", lambda pool, n=count: (pool(n // 10, 10).abs() + 1,)
        yield "randperm.default", lambda pool, n=count: (n, {"device": pool.device})
        yield "linspace.default", lambda pool, n=count: (0.0, 1.0, n, {"device": pool.device})
        yield "arange.start_step", lambda pool, n=count: (0, n, 1, {"device": pool.device})
    for rows, width in (
        (1, 1_000), (32, 200), (48, 32_000), (500, 5_000), (4, 128_000),
        *spread(10, (1, 2_000), (25, 150_000), most=1 << 22),
    ):  # fmt: skip
        chances: Make = lambda pool, s=(rows, width): pool(*s).abs()
        for count, replaced in ((1, True), (1, False), (5, True), (20, False)):
            yield "multinomial.default", lambda pool, p=chances, n=count, r=replaced: (p(pool), n, r)


def _cells() -> Calls:
    for batch, width in ((1, 64), (32, 128), (64, 1_024), (500, 300), *spread(8, (1, 1_000), (16, 2_048))):
        gates: Make = lambda pool, k, s=(batch, width): pool(s[0], k * s[1])
        yield "_thnn_fused_lstm_cell.default", lambda pool, g=gates: (g(pool, 4), g(pool, 4), g(pool, 1))
        yield "_thnn_fused_gru_cell.default", lambda pool, g=gates: (g(pool, 3), g(pool, 3), g(pool, 1))
        yield (
            "_thnn_fused_lstm_cell_backward_impl.default",
            lambda pool, g=gates: (g(pool, 1), g(pool, 1), g(pool, 1), g(pool, 1), g(pool, 4), True),
        )
        yield "_thnn_fused_gru_cell_backward.default", lambda pool, g=gates: (g(pool, 1), g(pool, 5), True)


def _searching() -> Calls:
    for count in _COUNTS:
        for bounds in (20, 240, 3_000, 25_000, 200_000):
            ordered: Make = lambda pool, n=bounds: torch.linspace(-2, 2, n, device=pool.device)
            yield "searchsorted.Tensor", lambda pool, b=ordered, n=count: (b(pool), pool(n))
            yield "bucketize.Tensor", lambda pool, b=ordered, n=count: (pool(n), b(pool))
        yield "histc.default", lambda pool, n=count: (pool(n), 50)
        yield "bincount.default", lambda pool, n=count: (pool.integers(500, n),)
        yield "bincount.default", lambda pool, n=count: (pool.integers(500, n), pool(n))
        yield "isin.Tensor_Tensor", lambda pool, n=count: (pool.integers(900, n), pool.integers(900, 200))
        yield "repeat_interleave.Tensor", lambda pool, n=count: (pool.integers(3, n),)
    for bags, each, rows, width in (
        (8, 5, 500, 32), (200, 30, 10_000, 64), (3_000, 8, 100_000, 96),
        *spread(12, (4, 8_000), (1, 60), (100, 100_000), (8, 256), most=1 << 34),
    ):  # fmt: skip
        bag: Build = lambda pool, s=(bags, each, rows, width): (
            *(pool(s[2], s[3]), pool.integers(s[2], s[0] * s[1])),
            torch.arange(0, s[0] * s[1], s[1], device=pool.device),
        )
        for name in ("_embedding_bag", "_embedding_bag_forward_only"):
            for mode in (0, 1, 2):
                yield f"{name}.default", lambda pool, b=bag, m=mode: (*b(pool), False, m)


def _attention() -> Calls:
    for dtype in (torch.float32, _HALF):
        for batch, heads, length, head in (
            (1, 4, 20, 16),
            (12, 8, 64, 32),
            (24, 12, 100, 64),
            (4, 16, 700, 64),
            (2, 8, 1_200, 80),
        ):
            width = heads * head
            yield (
                "_transform_bias_rescale_qkv.default",
                lambda pool, s=(batch, length, 3 * width), t=dtype, h=heads: (
                    pool(*s, dtype=t),
                    pool(s[2], dtype=t),
                    h,
                ),
            )
            for kind, sizes in ((1, (batch, length)), (2, (batch, heads, length, length))):
                yield (
                    "_masked_softmax.default",
                    lambda pool, s=(batch, heads, length, length), m=sizes, k=kind, t=dtype: (
                        pool(*s, dtype=t), pool.bools(*m), 3, k
                    ),
                )  # fmt: skip
