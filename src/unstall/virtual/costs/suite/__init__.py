"""The cases that `unstall calibrate` measures: operators with typical sizes. No single model was
the source of the sizes.
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
    """Returns the cases whose `rank` is at most `most`, the most important first.

    Cases of the same rank are in a random order with a fixed seed. So a calibration that ends early
    has measured some cases of each kind of operator.
    """
    families = (elementwise, norms, reductions, indexing, optimizers, attention, gemm, convolution)
    found: Iterator[Case] = chain.from_iterable(family.cases() for family in families)
    chosen = [case for case in found if case.rank <= most]
    random.Random(0).shuffle(chosen)
    return sorted(chosen, key=lambda case: case.rank)
