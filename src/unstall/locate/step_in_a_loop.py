"""Chooses the steps of one loop, if a program has several loops: over the items of `unstall.stream_map`,
`unstall.prefetch` or a DataLoader, or a training loop in each epoch, with an evaluation between the epochs.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.locate.startup import is_loading
from unstall.locate.step_evidence import launches_kernels
from unstall.locate.step_spans import ALIKE, FoundBy, Steps, launch_sequence, steps_of
from unstall.timeline.columns import I64, Bool, StepsLeftOut, Timeline
from unstall.timeline.grouping import distinct
from unstall.timeline.intervals import Intervals

_APART_NS = 1_000  # a trace's times may be rounded
_LONG = 2  # times the time of a typical step
_FEW = 0.25  # of the steps: what happens more often than in every fourth is a part of the program's normal work


def of_longest_loop(timeline: Timeline, found_by: FoundBy, name: str, start: I64, end: I64) -> Steps:
    """Returns the steps of the longest loop. If several loops are equally long, returns those of the last of them.

    Each step begins where the step before it ends, except in two cases. The last step of a loop over items ends with
    the loop. And if calls of an optimizer end the steps, what the program does between two training loops, such as an
    evaluation, would belong to the first step of the second loop: this step is left out.

    If each span stands apart from the next, they are no loops, and all steps are returned.

    Args:
        timeline: A recorded run.
        found_by: How the steps were found.
        name: The name of the annotations around steps, or of those that end them.
        start: The start of each step, in ns.
        end: The end of each step, in ns.
    """
    apart = np.append(True, start[1:] - end[:-1] > _APART_NS)
    mixed = begin_with_other_work(timeline, start, end)
    borders = np.append(np.flatnonzero(apart | mixed), len(start))
    lengths = np.diff(borders)
    if len(lengths) in (1, len(start)):
        return steps_of(timeline, found_by, name, start, end)
    longest = len(lengths) - 1 - int(np.argmax(lengths[::-1]))
    chosen = np.zeros(len(start), dtype=np.bool_)
    chosen[borders[longest] : borders[longest + 1]] = True
    chosen &= ~mixed
    steps = steps_of(timeline, found_by, name, start[chosen], end[chosen])
    left_out = StepsLeftOut(
        loops=int(np.count_nonzero(~chosen & ~mixed)),
        mixed=int(np.count_nonzero(mixed)),
        empty=steps.left_out.empty if steps.left_out else 0,
        of=len(start),
        mean_ns=max(1, round(float((end - start)[~chosen].mean()))),
    )
    return replace(steps, left_out=left_out)


def begin_with_other_work(timeline: Timeline, start: I64, end: I64) -> Bool:
    """Returns, for each step [start, end), whether it takes at least twice as long as a typical step, ends with the
    launches of one, and what comes before these takes at least as long as one: it is other work, such as an
    evaluation. Copies do not count: a checkpoint is no loop of its own. Nor does the loading of modules: a kernel's
    first use ends no loop.

    A step that is long in itself, such as one for a long sequence in a recurrent net, does not end like this. If more
    than every fourth step is of this kind, none is returned: the other work is then a part of what the program repeats.
    """
    took, mixed = end - start, np.zeros(len(start), dtype=np.bool_)
    if len(took) < 1 / _FEW or not (long := took >= _LONG * np.median(took)).any():
        return mixed  # most runs: their launches need not be looked at
    calls, tokens = launch_sequence(timeline)
    computes = launches_kernels(timeline, calls)
    calls, tokens = calls[computes], tokens[computes]
    times, (_, kernel) = timeline.host.start[calls], distinct(tokens)
    first, last = np.searchsorted(times, start), np.searchsorted(times, end)
    work = last - first
    typical = int(np.argmin(np.abs(work - np.median(work))))
    long &= ALIKE * work > work[typical]
    if not work[typical] or long.mean() > _FEW:
        return mixed
    loading = is_loading(timeline)
    loads = Intervals.union(timeline.host.start[loading], timeline.host.end[loading])
    begins = times[np.maximum(last - work[typical], 0)]  # what a typical step launches
    before = begins - start - loads.covered(start, begins)
    long &= before >= np.median(took)

    def launched(begin: int, stop: int) -> I64:
        return np.bincount(kernel[begin:stop], minlength=int(kernel.max(initial=0)) + 1)

    for step in np.flatnonzero(long):
        usual, at_the_end = (launched(last[each] - work[typical], last[each]) for each in (typical, step))
        mixed[step] = np.minimum(usual, at_the_end).sum() >= ALIKE * work[typical]
    return mixed
