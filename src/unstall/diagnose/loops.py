"""Tells a function that contains the loop over the steps from a function that is called in each step."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.timeline.columns import I32, I64, HostKind
from unstall.what_if.place import EditPlace


def goes_around_steps(run: Run, function: EditPlace) -> bool:
    """Returns whether a function contains the loop over the steps.

    The result is True if the function makes the CUDA calls of several steps, and no CUDA call
    outside of the function comes between these calls.

    The result is also True for a function that is called once per step and makes all CUDA calls of
    the step. The recording of such a function cannot be told from that of a function with the loop.
    """
    host = run.timeline.host
    calls = np.flatnonzero(run.inside & (host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    inside = function.events(run.places)[calls]
    runs = int((inside & ~np.append(False, inside[:-1])).sum())
    return runs < len(run.steps)


def holds_the_loop(run: Run, group: Group) -> bool | None:
    """Returns whether a function contains the loop over the steps; None if this is unknown. The
    function is the one that contains the source line of `group`.

    Code at module level contains the loop. A function contains the loop if it asks a DataLoader for
    the batches of several steps, or if it is called fewer times than there are steps.

    The result is None if function calls were not recorded and all launches of the steps are in the
    function. Such a function may contain the loop, or may be called once in each step.
    """
    timeline, host = run.timeline, run.timeline.host
    where = run.where(group)
    if where.function == "<module>":
        return True
    if where.file is None or where.function is None or len(run.steps) < 2:
        return False
    if not goes_around_steps(run, EditPlace(where.file, function=where.function)):
        return False
    if _in_function(run, group, run.places.place[run.activity.input_rows]):
        return True
    rows = np.flatnonzero((host.kind == HostKind.PYTHON) & (host.end > run.window[0]) & (host.start < run.window[1]))
    stack = host.stack[rows]
    calls = _in_function(run, group, timeline.stacks.line[stack[stack >= 0]])
    if 0 < calls < len(run.steps):
        return True
    by_line = bool(timeline.lines.exact[group.place])  # frames are then of lines, not of calls
    return None if by_line or not calls else False


def _in_function(run: Run, group: Group, places: I32 | I64) -> int:
    """Returns how many of `places` are in the group's function."""
    lines = run.timeline.lines
    known = places[(places >= 0) & (places < len(lines))]
    same = (lines.file[known] == lines.file[group.place]) & (lines.function[known] == lines.function[group.place])
    return int(same.sum())


def lines_of(run: Run, group: Group) -> str:
    """Returns the lines of a function that lead to the launches in `group`, such as "train.py:40 to
    47". The function is the one that contains the source line of `group`.

    Returns "" if only the `def` lines of functions are known.
    """
    lines, stacks = run.timeline.lines, run.timeline.stacks
    if not 0 <= group.place < len(lines) or not lines.exact[group.place]:
        return ""
    # A first step may have what the program does before its loop.
    later = group.rows[run.timeline.host.start[group.rows] >= run.steps.start[min(1, len(run.steps) - 1)]]
    frames = np.unique(run.places.frame[later if len(later) else group.rows]).tolist()
    own = [frame for each in frames if (frame := run.places.around(group.place, each)) >= 0]
    if not own:
        return ""
    numbers = lines.line[stacks.line[own]]
    low, high = int(numbers.min()), int(numbers.max())
    file = run.timeline.text(int(lines.file[group.place]))
    return f"{file}:{low}" if low == high else f"{file}:{low} to {high}"
