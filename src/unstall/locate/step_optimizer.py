"""Finds steps by the optimizer: a step ends when a call of the optimizer ends."""

from __future__ import annotations

import re

import numpy as np

from unstall.locate.step_annotations import annotated, named
from unstall.locate.step_evidence import launches_kernels, within_one_call
from unstall.locate.step_in_a_loop import begin_with_other_work, of_longest_loop
from unstall.locate.step_spans import (
    ALIKE,
    LEAST_PERIODS,
    Steps,
    host_start,
    launch_sequence,
    launch_times,
)
from unstall.timeline.columns import I32, I64, Timeline
from unstall.timeline.grouping import distinct

OPTIMIZER_STEP = re.compile(r"Optimizer\.step#")
_MOST_OPTIMIZERS = 8


def by_optimizer(timeline: Timeline) -> Steps | None:
    """Returns the steps of a training program. Each step lasts from the end of one call of
    `optimizer.step()` to the end of the next. The time before the first end counts as a step, too,
    if it has about as many launches as later steps. If the program trains in several loops, such as
    one for each epoch, or one after the other by two optimizers, the steps are those of the longest.

    Returns None if the optimizer was called fewer than two times. Also returns None if several
    optimizers step within one backward pass, each for some of the parameters.
    """
    rows = annotated(timeline, named(OPTIMIZER_STEP))
    if len(rows) < 2:
        return None
    first, ending = _longest_loop(timeline.host.name[rows])
    other_loops, rows = rows[:first], rows[ending]
    if len(rows) < 2:
        return None
    ends = timeline.host.end[rows]
    if not begin_with_other_work(timeline, ends[:-1], ends[1:]).any():
        ends = ends[::-1][:: _calls_per_step(timeline, rows)][::-1]
    if within_one_call(timeline, ends):
        return None
    name = timeline.strings[timeline.host.name[rows[0]]]
    if len(other_loops):
        ends = np.append(timeline.host.end[other_loops[-1]], ends)
    elif begins_with_a_step(timeline, ends):
        ends = np.append(host_start(timeline), ends)
    return of_longest_loop(timeline, "optimizer", name, ends[:-1], ends[1:])


def _longest_loop(names: I32) -> tuple[int, I64]:
    """Returns `(first, ending)`: the first optimizer call of the longest loop, and those of its calls that end steps,
    which are of one optimizer. Of equally long loops, the last one counts.

    Optimizers that take turns step in one iteration, and the last one ends it. An optimizer whose calls all come
    before or after those of the others has a loop of its own.

    `names` has the name of the optimizer of each call, in order of time. The result has indices into it.
    """
    kinds, first, which, count = np.unique(names, return_index=True, return_inverse=True, return_counts=True)
    last = len(names) - 1 - np.unique(names[::-1], return_index=True)[1]
    order = np.argsort(first)
    begins = np.append(True, first[order][1:] > np.maximum.accumulate(last[order])[:-1])
    loop = np.zeros(len(kinds), dtype=np.int64)
    loop[order] = np.cumsum(begins)
    enders = [int(mine[np.argmax(last[mine])]) for mine in (np.flatnonzero(loop == each) for each in np.unique(loop))]
    chosen = max(enders, key=lambda kind: (count[kind], last[kind]))
    return int(first[loop == loop[chosen]].min()), np.flatnonzero(which == chosen)


def begins_with_a_step(timeline: Timeline, ends: I64) -> bool:
    """Returns whether the part of the run before the first step boundary has about as many launches
    as a step.

    `ends` has the times in ns at which steps end. If there are fewer than two times, returns False.
    """
    work = np.diff(np.searchsorted(launch_times(timeline), ends), prepend=0)
    return bool(len(work) > 1 and work[0] and work[0] >= ALIKE * np.median(work[1:]))


def _calls_per_step(timeline: Timeline, optimizer: I64) -> int:
    """Returns the number of optimizer calls in one step. For a GAN with one Adam for each of its
    two nets, the number is 2.

    `optimizer` has the optimizer calls, as rows of `timeline.host`. They all have the same name.
    For each number n, the launches after each call are compared with the launches after the call
    that is n calls later. The order of the launches is ignored, and so are copies: a program that
    copies its weights to the host in each third step has steps of one call. The candidate is the smallest n for
    which at most 10 % of the compared launches differ. The result is the candidate if for each
    smaller n, at least twice as many launches differ. If this is not so, the result is 1.

    Measured on an H200: The two nets of a DCGAN have 78 % of their launches in common, and
    successive steps have 97 % to 100 % in common. If the optimizer of one net has five calls for
    each call of the other optimizer, the launches after successive calls have 93 % in common. The
    launches also have 93 % in common in a program that does extra work in every sixth step. In both
    cases the result is 1.
    """
    calls, tokens = launch_sequence(timeline)
    computes = launches_kernels(timeline, calls)
    calls, tokens = calls[computes], tokens[computes]
    part = np.searchsorted(timeline.host.end[optimizer], timeline.host.start[calls], side="right") - 1
    between = (part >= 0) & (part < len(optimizer) - 1)
    part, (_, token) = part[between], distinct(tokens[between])
    most = min(len(optimizer) // LEAST_PERIODS, _MOST_OPTIMIZERS)
    differ = np.array([1 - _alike(part, token, distance) for distance in range(1, most + 1)])
    period = int(np.argmax(differ <= 1 - ALIKE)) if most else 0
    clear = period == 0 or differ[:period].min() >= 2 * differ[period]
    return period + 1 if clear else 1


def _alike(part: I64, token: I64, distance: int) -> float:
    """Compares each part of the run with the part that comes `distance` parts later. Returns the share of the launches
    that the two parts have in common.

    Args:
        part: For each launch, the number of the part that contains the launch. Parts are numbered in order of time.
        token: For each launch, a number for its kernel. Equal numbers mean the same kernel.
        distance: How many parts apart the two compared parts are.
    """
    launches, width = np.bincount(part), int(token.max(initial=0)) + 1
    kinds, count = np.unique(part * width + token, return_counts=True)
    _, this, other = np.intersect1d(kinds + distance * width, kinds, assume_unique=True, return_indices=True)
    most = np.maximum(launches[:-distance], launches[distance:]).sum()
    return float(np.minimum(count[this], count[other]).sum() / most) if most else 1.0
