"""Cases of operators of linear algebra and of Fourier transforms."""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from unstall.virtual.costs.suite.case import Calls, Case, Make, TensorPool, cases_of, spread

_COUNTS = (100, 3_000, 20_000, 150_000, 700_000, 3_000_000)
_MATRICES = (
    (1, 6), (1, 24), (1, 100), (1, 400), (1, 900), (20, 3), (500, 5), (16, 32), (6, 100), (200, 48), (24, 160),
    *((1, order) for order in (2, 3, 4, 9, 13, 18, 32, 33, 48, 64, 70, 128, 150, 200, 256, 320, 512, 640, 768, 1_024)),
    (1, 1_500), (1, 2_048), (10, 2), (300, 2), (4_000, 2), (4, 4), (100, 3), (3_000, 3), (100, 4), (2_000, 4),
    *(
        (batch, order)
        for batch, order in (*spread(80, (2, 4_000), (2, 32)), *spread(80, (2, 1_000), (33, 512)))
        if batch * order**2 < 4_000_000
    ),
)  # fmt: skip
_SLOW = 1_100
"""Finding eigenvalues of larger matrices takes too long here."""
_AT_ONCE, _IN_TURN = 32, 12
"""Up to which order matrices are decomposed at once; of more than so many others, each in turn, the calls have too many
kernels to be measured.
"""


def cases() -> Iterator[Case]:
    """Yields the cases of these operators."""
    yield from cases_of(_matrices, _distances, _transforms, rank=2)


def _bare(pool: TensorPool, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return pool(*[size for at, size in enumerate(sizes) if at or size > 1], dtype=dtype)


def _regular(pool: TensorPool, dtype: torch.dtype, batch: int, order: int) -> torch.Tensor:
    """Returns positive definite matrices."""
    x = _bare(pool, dtype, batch, order, order)
    return x if x.device.type == "meta" else x @ x.mT + order * torch.eye(order, device=x.device, dtype=dtype)


def _matrices() -> Calls:
    for dtype, shapes in ((torch.float32, _MATRICES), (torch.float64, _MATRICES[::2])):
        for batch, order in shapes:
            yield from _squares(dtype, batch, order)
            if order < _SLOW and batch <= _IN_TURN:
                yield from _tall(dtype, batch, order)
    for rows, order in spread(24, (1_000, 1_000_000), (4, 64), most=1 << 24, seed="tall"):
        yield "linalg_qr.default", lambda pool, s=(rows, order): (_bare(pool, torch.float32, 1, *s),)
    for count in _COUNTS:
        yield "vdot.default", lambda pool, n=count: (pool(n), pool(n))
        yield "linalg_cross.default", lambda pool, n=count: (pool(n // 3, 3), pool(n // 3, 3))
    sizes = spread(32, (3, 1_024), (3, 1_024), (3, 1_024), most=1 << 28, seed="int8")
    for m, n, k in ((8, 32, 32), (64, 64, 64), (256, 192, 96), (384, 384, 384), *sizes):
        left: Make = lambda pool, s=(8 * m, 8 * k): pool.integers(127, *s, dtype=torch.int8)
        plain: Make = lambda pool, s=(8 * k, 8 * n): pool.integers(127, *s, dtype=torch.int8)
        turned: Make = lambda pool, s=(8 * n, 8 * k): pool.integers(127, *s, dtype=torch.int8).t()
        for right in (plain, turned):
            yield "_int_mm.default", lambda pool, x=left, y=right: (x(pool), y(pool))


def _squares(dtype: torch.dtype, batch: int, order: int) -> Calls:
    spd: Make = lambda pool: _regular(pool, dtype, batch, order)
    for operator in (
        "_linalg_det.default", "_linalg_slogdet.default", "linalg_cholesky_ex.default", "linalg_inv_ex.default",
        "linalg_lu_factor_ex.default",
    ):  # fmt: skip
        yield operator, lambda pool: (spd(pool),)
    if batch <= _IN_TURN:
        yield "linalg_qr.default", lambda pool: (spd(pool),)
    if order < _SLOW and (batch == 1 or order <= _AT_ONCE or batch * order < 6 * _AT_ONCE):
        for vectors in (False, True):
            yield "_linalg_eigh.default", lambda pool, v=vectors: (spd(pool), "L", v)
            yield "_linalg_svd.default", lambda pool, v=vectors: (spd(pool), False, v)
    for columns in (1, 40):
        right: Make = lambda pool, c=columns: _bare(pool, dtype, batch, order, c)
        yield "_linalg_solve_ex.default", lambda pool, r=right: (spd(pool), r(pool))
        yield "_cholesky_solve_helper.default", lambda pool, r=right: (r(pool), spd(pool), False)
        yield "linalg_solve_triangular.default", lambda pool, r=right: (spd(pool), r(pool), {"upper": False})
    yield "linalg_matrix_exp.default", lambda pool: (_bare(pool, dtype, batch, order, order) * 0.01,)


def _tall(dtype: torch.dtype, batch: int, order: int) -> Calls:
    tall: Make = lambda pool: _bare(pool, dtype, batch, 4 * order, order)
    yield "linalg_qr.default", lambda pool: (tall(pool),)
    yield "linalg_lstsq.default", lambda pool: (tall(pool), _bare(pool, dtype, batch, 4 * order, 2))
    if batch == 1 or order <= _AT_ONCE:
        yield "_linalg_svd.default", lambda pool: (_bare(pool, dtype, batch, 2 * order, order), False, True)


def _distances() -> Calls:
    for rows, others, width in (
        (40, 40, 16), (300, 200, 50), (2_000, 1_500, 128), (900, 900, 3),
        *spread(16, (16, 4_000), (16, 4_000), (2, 512), most=1 << 30),
    ):  # fmt: skip
        for p in (1.0, 2.0):
            two: Callable[..., tuple[torch.Tensor, torch.Tensor]] = lambda pool, s=(rows, others, width): (
                pool(s[0], s[2]), pool(s[1], s[2])
            )  # fmt: skip
            yield "_cdist_forward.default", lambda pool, two=two, p=p: (*two(pool), p, 2)
            yield (
                "_cdist_backward.default",
                lambda pool, two=two, p=p, s=(rows, others): (pool(*s), *two(pool), p, pool(*s).abs()),
            )
        pairs = rows * (rows - 1) // 2
        yield "_pdist_forward.default", lambda pool, s=(rows, width): (pool(*s),)
        yield "_pdist_backward.default", lambda pool, n=pairs, s=(rows, width): (pool(n), pool(*s), 2.0, pool(n).abs())


_LINES = (
    *((1, 512), (1, 100_000), (32, 1_000), (300, 400), (20, 20_000), (3_000, 512), (200, 7_001), (16, 1_021)),
    *((rows, 1 << power) for rows in (1, 24, 500, 8_000) for power in range(4, 21, 2) if rows << power <= 1 << 23),
    *spread(40, (1, 4_000), (12, 100_000), most=1 << 23),
)
_SQUARES = (
    *((1, 64), (8, 128), (16, 200), (4, 768), (128, 96), (1, 256), (1, 512), (1, 1_024), (16, 64), (64, 32)),
    *((64, 224), (24, 256), (6, 512), (512, 28), (256, 64), (1, 127), (1, 1_021), (8, 251), (1, 2_048), (32, 60)),
)
_CUBES = (1, 32), (1, 64), (1, 128), (4, 48), (8, 64), (1, 100), (1, 61), (2, 96)


def _transforms() -> Calls:
    for precise in (False, True):
        few = 3 if precise else 1
        for rows, length in _LINES[::few]:
            yield from _transform((rows, length), [1], precise)
            yield from _transform((length, rows), [0], precise)
        for batch, side in _SQUARES[::few]:
            yield from _transform((batch, side, side), [1, 2], precise)
        for batch, side in _CUBES[::few]:
            yield from _transform((batch, side, side, side), [1, 2, 3], precise)


def _transform(shape: tuple[int, ...], dims: list[int], precise: bool) -> Calls:
    real, pairs = (torch.float64, torch.complex128) if precise else (torch.float32, torch.complex64)
    length = shape[dims[-1]]
    half = (*shape[: dims[-1]], length // 2 + 1, *shape[dims[-1] + 1 :])
    yield "_fft_r2c.default", lambda pool: (pool(*shape, dtype=real), dims, 0, True)
    yield "_fft_c2c.default", lambda pool: (pool(*shape, dtype=pairs), dims, 0, True)
    if dims != [0]:
        yield "_fft_c2r.default", lambda pool: (pool(*half, dtype=pairs), dims, 2, length)
