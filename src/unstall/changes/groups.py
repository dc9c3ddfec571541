"""Puts things of two runs, such as kernels or copies, into groups. Things with equal keys, in
either run, belong to the same group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from unstall.changes.result import Status
from unstall.changes.spread import Sums, sums
from unstall.timeline.columns import I64
from unstall.timeline.grouping import distinct

_Change = TypeVar("_Change")


@dataclass(frozen=True, eq=False, slots=True)
class Grouped:
    """The things of one run that are compared, such as its kernels or copies, in groups. A group
    has the same number in both runs.

    Attributes:
        group: For each thing, the number of its group.
        step: For each thing, the index of its step.
        groups: The number of groups in both runs together.
        steps: The number of steps of this run.
    """

    group: I64
    step: I64
    groups: int
    steps: int

    def sums(self, values: I64) -> Sums:
        """Returns the sum of some values for each group, and how much this sum varies from step to
        step. `values` has a value for each thing.
        """
        return sums(self.group, self.step, values, self.groups, self.steps)

    def first(self, rows: I64) -> I64:
        """Returns, for each group, one element of `rows`: the one for the first thing in the group.
        It is -1 if the group is empty in this run.

        `rows` has an element for each thing.
        """
        found = np.full(self.groups, -1, dtype=np.int64)
        found[self.group[::-1]] = rows[::-1]
        return found


def common(a: I64, b: I64) -> tuple[I64, I64, int]:
    """Puts things of two runs into groups, so that things with equal keys are in the same group.

    Args:
        a: The key of each thing of run A.
        b: The key of each thing of run B.

    Returns:
        `(groups of A's things, groups of B's things, number of groups)`. Groups are numbered from 0
        in the order of their keys.
    """
    keys, which = distinct(np.concatenate((a, b)))
    return which[: len(a)], which[len(a) :], len(keys)


def present(row_a: int, row_b: int) -> Status:
    """Returns "new" if a group of things is only in run B, "gone" if it is only in run A, and
    "changed" if it is in both.

    The arguments are the first row of the group in each run, or -1 if the run does not have the
    group.
    """
    return "new" if row_a < 0 else "gone" if row_b < 0 else "changed"


def largest_first(found: Iterable[_Change | None], size: Callable[[_Change], Any]) -> tuple[tuple[_Change, ...], int]:
    """Returns `(changes, unchanged)`: the changes in `found`, sorted by the key function `size`;
    how many elements of `found` are None.

    None in `found` stands for something that did not change. `size` returns a smaller key for a
    larger change.
    """
    each = list(found)
    changes = sorted((change for change in each if change is not None), key=size)
    return tuple(changes), len(each) - len(changes)
