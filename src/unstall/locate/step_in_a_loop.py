"""Chooses the steps of one loop, if a program has several loops over the items of `unstall.stream_map`,
`unstall.prefetch` or a DataLoader.

Each step of a recording begins where the step before it ends, except after a loop: the last step of a loop ends with
the loop, so that what the program does until the next loop is no part of a step.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.locate.step_spans import Steps, steps_of
from unstall.timeline.columns import I64, StepsLeftOut, Timeline

_APART_NS = 1_000  # a trace's times may be rounded


def of_longest_loop(timeline: Timeline, name: str, start: I64, end: I64) -> Steps:
    """Returns the steps of the longest loop. If several loops are equally long, returns those of the last of them.
    If each annotation stands apart from the next, they are no loops, and all steps are returned.

    Args:
        timeline: A recorded run.
        name: The name of the annotations around steps.
        start: The start of each step, in ns.
        end: The end of each step, in ns.
    """
    borders = np.concatenate(([0], np.flatnonzero(start[1:] - end[:-1] > _APART_NS) + 1, [len(start)]))
    lengths = np.diff(borders)
    longest = len(lengths) - 1 - int(np.argmax(lengths[::-1]))
    if len(lengths) in (1, len(start)):
        return steps_of(timeline, "annotation", name, start, end)
    chosen = np.zeros(len(start), dtype=np.bool_)
    chosen[borders[longest] : borders[longest + 1]] = True
    steps = steps_of(timeline, "annotation", name, start[chosen], end[chosen])
    others = (end - start)[~chosen]
    left_out = StepsLeftOut(
        loops=len(others),
        empty=steps.left_out.empty if steps.left_out else 0,
        of=len(start),
        mean_ns=max(1, round(float(others.mean()))),
    )
    return replace(steps, left_out=left_out)
