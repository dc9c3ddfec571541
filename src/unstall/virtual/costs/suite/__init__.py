"""What `unstall calibrate` measures: operators over grids of shapes that models have, no model's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from unstall.virtual.costs.suite import attention, convolution, elementwise, gemm, indexing, norms, optimizers, reductions
from unstall.virtual.costs.suite.case import Case, Pool

__all__ = ["Case", "Pool", "cases"]


def cases(most: int = 8) -> list[Case]:
    """All cases up to rank `most`, those of lower rank first."""
    families = (elementwise, norms, reductions, indexing, optimizers, attention, gemm, convolution)
    found: Iterator[Case] = chain.from_iterable(family.cases() for family in families)
    return sorted((case for case in found if case.rank <= most), key=lambda case: case.rank)
