"""Cases of sparse tensors: gradients of embeddings, matrices of graphs, and their products."""

# ruff: noqa: E731 — a case is a shape and how to make its tensors, and reads best on a line

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from unstall.virtual.costs.suite.case import Calls, Case, Make, TensorPool, cases_of, spread

_MATRICES = spread(28, (100, 200_000), (100, 200_000), (500, 2_000_000), (1, 512), most=1 << 52)
"""Rows, columns, stored elements, and the columns of the matrix that it is multiplied by."""
_TABLES = spread(28, (500, 2_000_000), (16, 200_000), (1, 512), most=1 << 52)
"""Rows of a table, of which some have a gradient, and their width."""
_FEW = 1 << 24  # elements of a dense tensor


def cases() -> Iterator[Case]:
    """Yields the cases of sparse tensors."""
    for case in cases_of(_gradients, _products, _changed, _rows_of_all, rank=2):
        yield replace(case, on_meta=False)


def matrix(pool: TensorPool, rows: int, columns: int, stored: int, *, repeats: bool = False) -> torch.Tensor:
    """Returns a matrix in the layout COO.

    Args:
        pool: Makes its parts.
        rows: The number of its rows.
        columns: The number of its columns.
        stored: How many elements are stored.
        repeats: Whether places may be stored several times, in any order.
    """
    if repeats:
        places = torch.stack([pool.integers(rows, stored), pool.integers(columns, stored)])
    else:
        stored = min(stored, rows * columns)
        at = torch.arange(stored, device=pool.device) * (rows * columns // stored)
        places = torch.stack([at // columns, at % columns])
    return _coo(places, pool(stored), (rows, columns), repeats)


def rows_of(pool: TensorPool, rows: int, stored: int, width: int, *, repeats: bool) -> torch.Tensor:
    """Returns some rows of a table, as the gradient of an embedding has them."""
    places = pool.integers(rows, stored) if repeats else torch.arange(stored, device=pool.device)
    return _coo(places[None], pool(stored, width), (rows, width), repeats)


def _coo(places: torch.Tensor, values: torch.Tensor, sizes: tuple[int, ...], repeats: bool) -> torch.Tensor:
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        return torch.sparse_coo_tensor(places, values, sizes, is_coalesced=not repeats)


def _compressed(pool: TensorPool, rows: int, columns: int, stored: int) -> torch.Tensor:
    """Returns a matrix in the layout CSR."""
    coo = matrix(pool, rows, columns, stored)
    starts = torch.searchsorted(coo._indices()[0].contiguous(), torch.arange(rows + 1, device=pool.device))
    within = coo._indices()[1].contiguous()
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        return torch.sparse_csr_tensor(starts, within, coo._values(), (rows, columns))


def _gradients() -> Calls:
    for rows, stored, width in _TABLES:
        if rows * width > _FEW * 4 or stored * width > _FEW * 2:
            continue
        repeated: Make = lambda pool, r=rows, n=stored, w=width: rows_of(pool, r, n, w, repeats=True)
        few = min(stored, rows)
        once: Make = lambda pool, r=rows, n=few, w=width: rows_of(pool, r, n, w, repeats=False)
        table: Make = lambda pool, r=rows, w=width: pool(r, w)
        yield "_coalesce.default", lambda pool, x=repeated: (x(pool),)
        yield "sparse_mask.default", lambda pool, x=once, t=table: (t(pool), x(pool))
        for made in (repeated, once):
            yield "add_.Tensor", lambda pool, x=made, t=table: (t(pool), x(pool), {"alpha": -0.1})
        yield "_to_dense.default", lambda pool, x=once: (x(pool),)
    for rows, stored, width in spread(16, (1_000, 1_000_000), (2_000, 500_000), (8, 256), most=1 << 46):
        if max(rows, stored) * width <= 1 << 26:
            yield "_coalesce.default", lambda pool, s=(rows, stored, width): (rows_of(pool, *s, repeats=True),)


def _products() -> Calls:
    for rows, columns, stored, width in _MATRICES:
        if max(rows, columns) * width > _FEW:
            continue
        size = rows, columns, stored
        coo: Make = lambda pool, s=size: matrix(pool, *s)
        csr: Make = lambda pool, s=size: _compressed(pool, *s)
        dense: Make = lambda pool, n=columns, w=width: pool(n, w)
        for sparse in (coo, csr):
            yield "mm.default", lambda pool, x=sparse, y=dense: (x(pool), y(pool))
            yield "addmm.default", lambda pool, x=sparse, y=dense, n=rows, w=width: (pool(n, w), x(pool), y(pool))
            yield "mv.default", lambda pool, x=sparse, n=columns: (x(pool), pool(n))
        if rows * columns <= _FEW:
            yield (
                "sparse_sampled_addmm.default",
                lambda pool, x=csr, n=rows, k=width, m=columns: (x(pool), pool(n, k), pool(k, m)),
            )
    for rows, columns, stored, _ in _MATRICES[:12]:
        if stored * stored < 40 * _FEW * rows:
            yield (
                "_sparse_sparse_matmul.default",
                lambda pool, n=rows, k=columns, s=stored: (matrix(pool, n, k, s), matrix(pool, k, n, s)),
            )


def _changed() -> Calls:
    for rows, columns, stored, _ in _MATRICES:
        size = rows, columns, stored
        coo: Make = lambda pool, s=size: matrix(pool, *s)
        yield "_coalesce.default", lambda pool, s=size: (matrix(pool, *s, repeats=True),)
        yield "mul.Tensor", lambda pool, x=coo: (x(pool), x(pool))
        yield "add.Tensor", lambda pool, x=coo: (x(pool), x(pool))
        for name in ("neg.default", "sqrt.default", "relu.default", "clone.default"):
            yield name, lambda pool, x=coo: (x(pool),)
        yield "pow.Tensor_Scalar", lambda pool, x=coo: (x(pool), 2)
        yield "_to_sparse_csr.default", lambda pool, x=coo: (x(pool),)
        yield "_to_sparse.default", lambda pool, s=size: (_compressed(pool, *s),)
        yield "sum.default", lambda pool, x=coo: (x(pool),)
        for name in ("_sparse_softmax.default", "_sparse_log_softmax.default"):
            yield name, lambda pool, x=coo: (x(pool), 1, False)
        some: Make = lambda pool, n=rows: pool.integers(n, max(n // 4, 1))
        yield "index_select.default", lambda pool, x=coo, i=some: (x(pool), 0, i(pool))
        yield "cat.default", lambda pool, x=coo: ([x(pool), x(pool)],)
        if rows * columns <= _FEW:
            table: Make = lambda pool, n=rows, m=columns: pool(n, m)
            yield "mul.Tensor", lambda pool, x=coo, t=table: (x(pool), t(pool))
            yield "add.Tensor", lambda pool, x=coo, t=table: (t(pool), x(pool))
            yield "_to_dense.default", lambda pool, x=coo: (x(pool),)


def _rows_of_all() -> Calls:
    for rows, columns in spread(16, (16, 4_000), (16, 4_000)):
        few: Make = lambda pool, s=(rows, columns): pool(*s) * (pool(*s) > 1.5)
        yield "_to_sparse.default", lambda pool, x=few: (x(pool),)
        yield "_to_sparse.sparse_dim", lambda pool, x=few: (x(pool), 2)
        yield "_to_sparse_csr.default", lambda pool, x=few: (x(pool),)
