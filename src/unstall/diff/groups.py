"""Rows of both runs in common groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diff.spread import Sums, sums
from unstall.timeline.columns import I64
from unstall.timeline.grouping import distinct


@dataclass(frozen=True, eq=False, slots=True)
class Grouped:
    """Rows of one run, each in a group whose number is the same in the other."""

    group: I64
    step: I64
    groups: int
    steps: int

    def sums(self, values: I64) -> Sums:
        """A quantity by group and its spread over the steps."""
        return sums(self.group, self.step, values, self.groups, self.steps)

    def first(self, rows: I64) -> I64:
        """By group the first of its `rows`; -1 where it has none."""
        found = np.full(self.groups, -1, dtype=np.int64)
        found[self.group[::-1]] = rows[::-1]
        return found


def common(a: I64, b: I64) -> tuple[I64, I64, int]:
    """(group of each row of A, of B, number of groups) by equal keys, in their order."""
    keys, which = distinct(np.concatenate((a, b)))
    return which[: len(a)], which[len(a) :], len(keys)
