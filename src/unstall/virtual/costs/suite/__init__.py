"""The cases that `unstall calibrate` measures: operators with typical sizes. No single model was
the source of the sizes.
"""

from __future__ import annotations

import random
from collections import Counter
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

_OF_EACH = 24  # cases of an operator that come first


def cases(most: int = 8) -> list[Case]:
    """Returns the cases whose `rank` is at most `most`: some of each operator, then the most important first.

    Cases of the same rank are in a random order with a fixed seed. A calibration that ends early has measured some
    cases of each operator.
    """
    families = (elementwise, norms, reductions, indexing, optimizers, attention, gemm, convolution)
    found: Iterator[Case] = chain.from_iterable(family.cases() for family in families)
    chosen = [case for case in found if case.rank <= most]
    random.Random(0).shuffle(chosen)
    chosen.sort(key=lambda case: case.rank)
    met: Counter[str] = Counter()

    def later(case: Case) -> bool:
        met[case.operator] += 1
        return met[case.operator] > _OF_EACH

    return sorted(chosen, key=later)
