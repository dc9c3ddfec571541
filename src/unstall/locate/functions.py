"""Call stacks by function: where stacks are of the lines that ran, those of one function call stand for one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.ancestry import depths
from unstall.timeline.columns import I32, I64, Timeline
from unstall.timeline.grouping import distinct


@dataclass(frozen=True, eq=False, slots=True)
class Functions:
    """By row of Stacks. Where lines are functions' first, every row is a function of its own."""

    row: I32  # the first of the rows that are lines of the same function, called from the same one
    parent: I32  # of a row that stands for a function: the one that stands for its caller; else -1


def function_of(timeline: Timeline) -> I64:
    """By row of Lines: a number from 0 on that those of one function share, where they are lines that ran."""
    lines = timeline.lines
    named = lines.file.astype(np.int64) * (len(timeline.strings) + 1) + lines.function
    return distinct(np.where(lines.exact, named + len(lines), np.arange(len(lines))))[1]


def functions(timeline: Timeline) -> Functions:
    """Which rows of Stacks are the same function."""
    stacks, lines, function = timeline.stacks, timeline.lines, function_of(timeline)
    row = np.arange(len(stacks), dtype=np.int32)
    depth = depths(stacks.parent)
    # A caller's lines are one before its callees are: from the root on.
    for level in range(int(depth.max(initial=-1)) + 1):
        mine = np.flatnonzero(depth == level)
        above = stacks.parent[mine]
        caller = np.where(above >= 0, row[np.maximum(above, 0)], -1).astype(np.int64) + 1
        _, first, which = np.unique(
            caller * (len(lines) + 1) + function[stacks.line[mine]], return_index=True, return_inverse=True
        )
        row[mine] = mine[first][which]
    stands = row == np.arange(len(row))
    parent = np.where(stands & (stacks.parent >= 0), row[np.maximum(stacks.parent, 0)], -1) if len(row) else row
    return Functions(row, parent.astype(np.int32))
