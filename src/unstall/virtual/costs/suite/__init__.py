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
    images,
    indexing,
    large_tables,
    linear_algebra,
    norms,
    optimizers,
    others,
    random_calls,
    reductions,
    sparse,
)
from unstall.virtual.costs.suite.case import Case, TensorPool

__all__ = ["Case", "TensorPool", "cases"]

_OF_EACH = 24  # cases of an operator's overload that come first


def cases(most: int = 8) -> list[Case]:
    """Returns the cases whose `rank` is at most `most`: first some of each overload of an operator, in turns, then the
    others. So a calibration that ends early has measured some cases of each. The most important come first in both
    parts; cases of the same rank are in a random order with a fixed seed.
    """
    groups = (elementwise, norms, reductions, indexing, optimizers, attention, gemm, convolution)
    more = (linear_algebra, images, others, large_tables, sparse, random_calls)
    found: Iterator[Case] = chain.from_iterable(group.cases() for group in (*groups, *more))
    chosen = [case for case in found if case.rank <= most]
    random.Random(0).shuffle(chosen)
    chosen.sort(key=lambda case: case.rank)
    of_each: Counter[str] = Counter()
    turns = []
    for case in chosen:
        turns.append(min(of_each[case.operator], _OF_EACH))
        of_each[case.operator] += 1
    return [chosen[at] for at in sorted(range(len(chosen)), key=turns.__getitem__)]
