"""Distinguishes a function that holds the loop over the steps from a function that each step calls."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.timeline.columns import HostKind
from unstall.what_if.place import parse_function


def goes_around_steps(run: Run, edit: str) -> bool:
    """Returns whether a function holds the loop over the steps.

    It does if the CUDA calls of several steps follow each other inside the function, with no CUDA call outside in
    between. A function that is called once per step and makes all CUDA calls of the step looks the same, so the result
    is also True for it.
    """
    host = run.timeline.host
    calls = np.flatnonzero(run.inside & (host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    inside = parse_function(edit.partition(":")[2]).chosen(run.places)[calls]
    runs = int((inside & ~np.append(False, inside[:-1])).sum())
    return runs < len(run.steps)


def holds_the_loop(run: Run, group: Group) -> bool:
    """Returns whether a group's function is known to hold the loop over the steps.

    This is known of code at module level, and of a function that goes around several steps and is called fewer times
    than there are steps. If function calls were not recorded, it is known of module level only.
    """
    timeline, host = run.timeline, run.timeline.host
    where = run.where(group)
    if where.function == "<module>":
        return True
    if where.file is None or len(run.steps) < 2:
        return False
    rows = np.flatnonzero((host.kind == HostKind.PYTHON) & (host.end > run.window[0]) & (host.start < run.window[1]))
    lines, line = timeline.lines, timeline.stacks.line[host.stack[rows]]
    same = (lines.file[line] == lines.file[group.place]) & (lines.function[line] == lines.function[group.place])
    calls = int((same & (host.stack[rows] >= 0)).sum())
    return 0 < calls < len(run.steps) and goes_around_steps(run, f"graph:{where.file}:{where.function}")


def lines_of(run: Run, group: Group) -> str:
    """Returns the lines of the group's function that lead to its launches, such as "train.py:40 to 47". "" if lines are
    not exact."""
    lines, stacks = run.timeline.lines, run.timeline.stacks
    if not 0 <= group.place < len(lines) or not lines.exact[group.place]:
        return ""
    frames = np.unique(run.places.frame[group.rows]).tolist()
    own = [frame for each in frames if (frame := run.places.around(group.place, each)) >= 0]
    if not own:
        return ""
    numbers = lines.line[stacks.line[own]]
    low, high = int(numbers.min()), int(numbers.max())
    file = run.timeline.text(int(lines.file[group.place]))
    return f"{file}:{low}" if low == high else f"{file}:{low} to {high}"
