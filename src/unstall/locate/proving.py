"""Finds the calls of functions of `unstall.graphed` in which the function itself runs, and no graph.

To check a graph, `unstall.graphed` observes, captures and compares the first calls of a function. A
function that cannot be captured, or gains nothing as a graph, runs eagerly in all calls.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from unstall.locate.kinds import named
from unstall.locate.step_spans import Steps, narrowed
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, Bool, StepsLeftOut, Timeline
from unstall.timeline.grouping import by_text
from unstall.timeline.intervals import Intervals

METHODS = ("_capture", "_observe", "_checked")
"""The methods of `GraphServer` (a class of `unstall.graphed`) that observe, capture or compare a
call. In these calls, the graph does not run in place of the function.
"""

EAGERLY, FOR_SPEED = "_called_eagerly", "_called_for_speed"
"""The methods of `GraphedFunction` that call the function without a graph: the first because none is
possible yet, or at all, the second because a graph was measured to gain nothing.
"""

PROVING_FILE = re.compile(r"(.*/)?unstall/fix/graphs/serving\.py$")
_CALLING_FILE = re.compile(r"(.*/)?unstall/fix/graphs/graphed_function\.py$")


def proving_frames(timeline: Timeline) -> I32:
    """Finds the host events that happen while `unstall.graphed` checks a graph: while it observes,
    captures or compares calls.

    Returns, for each host event, the row of `timeline.stacks` (a frame) for the method that does
    the check. The methods are those in `METHODS`. The row is -1 if the event happens outside of
    checks.
    """
    return _frames(timeline, PROVING_FILE, METHODS)


def called_without_graph(timeline: Timeline, method: str) -> Bool:
    """Returns, for each host event, whether it happens while `unstall.graphed` calls a function without
    a graph, by `method`: `EAGERLY` or `FOR_SPEED`.
    """
    return _frames(timeline, _CALLING_FILE, (method,)) >= 0


def _frames(timeline: Timeline, file: re.Pattern[str], methods: tuple[str, ...]) -> I32:
    """Returns, for each host event, the innermost frame of one of some methods, in files whose path matches."""
    stacks, lines, stack = timeline.stacks, timeline.lines, timeline.host.stack
    frames = np.full(len(stack), -1, dtype=np.int32)
    if not len(stacks):
        return frames
    of_file = named(timeline, file, lines.file)
    if not of_file.any():
        return frames
    chosen = of_file & (by_text(lines.function, lambda index: timeline.text(index).split(".")[-1] in methods) == 1)
    above = nearest(stacks.parent, chosen[stacks.line])
    return np.where(stack >= 0, above[np.maximum(stack, 0)], -1).astype(np.int32)


def proving_times(timeline: Timeline) -> Intervals:
    """Returns the intervals in which `unstall.graphed` checks graphs."""
    rows = np.flatnonzero(proving_frames(timeline) >= 0)
    return Intervals.union(timeline.host.start[rows], timeline.host.end[rows])


def without_proving(timeline: Timeline, steps: Steps) -> Steps:
    """Returns the longest series of consecutive steps in which `unstall.graphed` does not check
    graphs. This is the program's steady state.

    If several series are equally long, returns the last of these. If every step has checks, or if
    no step has checks, returns all steps.
    """
    proofs = proving_times(timeline)
    if not len(proofs):
        return steps
    proves = proofs.covered(steps.start, steps.end) > 0
    if proves.all() or not proves.any():
        return steps
    # Between two borders, no step contains a proof.
    borders = np.concatenate(([-1], np.flatnonzero(proves), [len(steps)]))
    free = np.diff(borders) - 1
    longest = len(free) - 1 - int(np.argmax(free[::-1]))
    first = int(borders[longest]) + 1
    last = first + int(free[longest])
    proving = int(np.count_nonzero(proves))
    others = np.ones(len(steps), dtype=np.bool_)
    others[first:last] = False
    lengths = np.append(steps.start[1:], steps.end[-1]) - steps.start
    left_out = replace(
        steps.left_out or StepsLeftOut(of=len(steps), mean_ns=1),
        proving=proving,
        apart=int(np.count_nonzero(others)) - proving,
        mean_ns=round(float(lengths[others].mean())),
    )
    return narrowed(timeline, replace(steps, left_out=left_out), first, last)
