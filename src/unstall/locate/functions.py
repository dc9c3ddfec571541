"""Finds, for the frames of call stacks, which frames are of the same function.

A recorder may store, for each frame, the line that ran. One function then has several frames, one
for each line.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from unstall.timeline.ancestry import depths
from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import distinct
from unstall.timeline.remembered import remembered

_LONGEST = 4096  # characters of a file and a function that are looked at


class Functions(msgspec.Struct, frozen=True, eq=False):
    """Says which frames of call stacks (rows of `timeline.stacks`) are frames of the same function,
    called by the same function.

    If the recorder stored only the `def` line of each function, every row counts as a function of
    its own.
    """

    row: I32  # by row: the first row with the same function and the same calling function
    parent: I32  # by row: for such a first row, the first row of its caller; else -1


@remembered
def function_of(timeline: Timeline) -> I64:
    """Returns the number of a function, from 0 on, for each row of `timeline.lines`.

    All executed lines of one function have the same number. A row that has only the `def` line of a
    function, because the executed line is not known, has a number of its own.
    """
    lines = timeline.lines
    named = lines.file.astype(np.int64) * (len(timeline.strings) + 1) + lines.function
    return distinct(np.where(lines.exact, named + len(lines), np.arange(len(lines))))[1]


@remembered
def named_functions(timeline: Timeline, pattern: re.Pattern[str]) -> Bool:
    """Returns a mask of the rows of `timeline.lines` for which `pattern` is found in the text "file: function"."""
    lines, text = timeline.lines, timeline.text
    keys = lines.file.astype(np.int64) * (len(timeline.strings) + 1) + lines.function
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    told = [f"{text(int(lines.file[i]))}: {text(int(lines.function[i]))}"[-_LONGEST:] for i in first.tolist()]
    matching = np.array([pattern.search(each) is not None for each in told], dtype=np.bool_)
    found: Bool = matching[which] if len(first) else np.zeros(len(lines), dtype=np.bool_)
    return found


@remembered
def functions(timeline: Timeline) -> Functions:
    """Returns the functions to which the frames of call stacks (rows of `timeline.stacks`) belong.
    A function that was called by two functions counts as two functions, one for each caller.
    """
    stacks, lines, function = timeline.stacks, timeline.lines, function_of(timeline)
    row = np.arange(len(stacks), dtype=np.int32)
    depth = depths(stacks.parent)
    # From the root on: callers must be grouped before their callees.
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
