"""The cases that `unstall calibrate` measures: operators over grids of typical shapes. The shapes are not taken from
any single model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain

from unstall.virtual.costs.suite import (
    attention,
    convolution,
    elementwise,
    gemm,
    indexing,
    norms,
    optimizers,
    reductions,
)
from unstall.virtual.costs.suite.case import Case, TensorPool

__all__ = ["Case", "TensorPool", "cases"]


def cases(most: int = 8) -> list[Case]:
    """Returns all cases whose priority (`Case.rank`) is at most `most`, in order of priority.

    Cases of the same priority are shuffled with a fixed seed. So a run that ends early has measured some cases of each
    family.
    """
    families = (elementwise, norms, reductions, indexing, optimizers, attention, gemm, convolution)
    found: Iterator[Case] = chain.from_iterable(family.cases() for family in families)
    chosen = [case for case in found if case.rank <= most]
    random.Random(0).shuffle(chosen)
    return sorted(chosen, key=lambda case: case.rank)
