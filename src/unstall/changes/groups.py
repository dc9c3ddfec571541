"""Puts rows of two runs into groups. Rows with equal keys, in either run, belong to the same group."""

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
    """The rows of one run, each with the number of its group. If a row of one run matches a row of the other run, both
    rows have the same group number.

    Attributes:
        group: The group of each row.
        step: The step of each row.
        groups: The number of groups.
        steps: The number of steps.
    """

    group: I64
    step: I64
    groups: int
    steps: int

    def sums(self, values: I64) -> Sums:
        """Returns the sum of `values` for each group, and how much this sum varies from step to step."""
        return sums(self.group, self.step, values, self.groups, self.steps)

    def first(self, rows: I64) -> I64:
        """Returns, for each group, the first element of `rows` that is in the group, or -1 if the group is empty."""
        found = np.full(self.groups, -1, dtype=np.int64)
        found[self.group[::-1]] = rows[::-1]
        return found


def common(a: I64, b: I64) -> tuple[I64, I64, int]:
    """Puts the rows of two runs into groups, so that rows with equal keys are in the same group.

    Returns (groups of A's rows, groups of B's rows, number of groups). Groups are numbered in the order of their keys.
    """
    keys, which = distinct(np.concatenate((a, b)))
    return which[: len(a)], which[len(a) :], len(keys)


def present(row_a: int, row_b: int) -> Status:
    """Returns whether a group is only in run B ("new"), only in run A ("gone"), or in both ("changed").

    The arguments are the group's first row in each run, or -1 if the run does not have the group.
    """
    return "new" if row_a < 0 else "gone" if row_b < 0 else "changed"


def largest_first(found: Iterable[_Change | None], size: Callable[[_Change], Any]) -> tuple[tuple[_Change, ...], int]:
    """Returns (changes, unchanged): the changes in `found`, sorted by the key function `size`; the number of None in
    `found`.

    None stands for a group that did not change.
    """
    each = list(found)
    changes = sorted((change for change in each if change is not None), key=size)
    return tuple(changes), len(each) - len(changes)
