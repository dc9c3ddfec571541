"""Adds steps to a timeline as annotations. The step boundaries come from `unstall.step()` or from helpers of
`unstall.fix`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from unstall.guest.step_source import EXPLICIT, OPTIMIZER, StepSource, StepSources
from unstall.locate.step_loops import calls_from_loops
from unstall.locate.step_spans import LEAST_PERIODS
from unstall.locate.steps import RECORDED_STEP, begins_with_a_step, find_steps
from unstall.timeline.columns import HostKind, StepMarks, Timeline
from unstall.virtual.timeline.added_rows import with_host_rows


def with_iterations(timeline: Timeline) -> Timeline:
    """Fills in, for each fault, the number of the step in which the fault happened. Steps are counted from 1. The
    number is -1 if the steps are unknown.

    A fault may end the program in the middle of a step. Suppose that the call with the fault came after the last
    complete step. If the program made the same call in earlier steps, the fault is in the step after the last complete
    step.
    """
    faults, host = timeline.faults, timeline.host
    if not len(faults):
        return timeline
    steps = find_steps(timeline)
    launched = np.where(faults.replay >= 0, faults.replay, faults.call)
    known = (launched >= 0) & (steps.found_by != "whole")
    number = np.full(len(faults), -1, np.int64)
    for fault in np.flatnonzero(known).tolist():
        row = int(launched[fault])
        at, within = int(host.start[row]), host.start >= steps.start[0]
        before = within & (host.stack == host.stack[row]) & (host.name == host.name[row]) & (host.start < at)
        if at >= steps.start[0] and (at < steps.end[-1] or before.any()):
            number[fault] = 1 + int(np.searchsorted(steps.end, at, side="right"))
    return replace(timeline, faults=replace(faults, iteration=number))


def with_found_steps(timeline: Timeline, boundaries: Sequence[tuple[StepSource, int]]) -> Timeline:
    """Adds steps to the timeline from the best source of step boundaries (ns), as a recording does.

    The best source is explicit calls of `unstall.step()`. The second best is an optimizer. The third best is iterated
    items, or calls of a model. `boundaries` has the steps of an optimizer only if a graph replays calls of the program,
    because a replay adds no annotation of the optimizer's step. If the timeline already has annotated steps or
    optimizer steps, iterated items and calls are not used, because one step may have several items. If `boundaries` is
    empty, the steps come from the calls in a framework's loop. Like iterated items, these calls are used only if the
    timeline has neither annotated steps nor optimizer steps.
    """
    sources = StepSources()
    for source, _ in boundaries:
        sources.add(source)
    leader = sources.leader()
    if leader is None:
        return _with_steps_of_loops(timeline)
    times = [at_ns for source, at_ns in boundaries if source == leader]
    if leader.kind == EXPLICIT:
        return with_steps(timeline, times)
    found_by = find_steps(timeline).found_by
    if len(times) < 2 or found_by == "annotation" or (found_by == "optimizer" and leader.kind != OPTIMIZER):
        return timeline
    return with_steps(timeline, times, cast("StepMarks", leader.kind))


def _with_steps_of_loops(timeline: Timeline) -> Timeline:
    times = calls_from_loops(timeline).tolist()
    if len(times) < LEAST_PERIODS or find_steps(timeline).found_by in ("annotation", "optimizer"):
        return timeline
    return with_steps(timeline, times, "forward")


def with_steps(timeline: Timeline, boundaries: Sequence[int], by: StepMarks = "explicit") -> Timeline:
    """Adds an annotation from each step boundary (ns) to the next boundary. As in a recording, the annotations are on
    the thread with the most calls.

    The time before the first boundary counts as a step in two cases. In the first case, there is only one boundary. In
    the second case, the boundaries are explicit, and about as much work was launched before the first boundary as in
    other steps. In all other cases, the time before the first boundary was the setup of a helper or a graph.
    """
    host = timeline.host
    whole = len(boundaries) == 1 or (by == EXPLICIT and begins_with_a_step(timeline, np.array(boundaries, np.int64)))
    borders = [0, *boundaries] if whole else list(boundaries)
    spans = list(itertools.pairwise(borders))
    if not spans or not len(host):
        return timeline
    calls = host.thread[host.kind < HostKind.CALL]
    thread = int(np.bincount(calls if len(calls) else host.thread).argmax())
    start, end = np.array(spans, np.int64).T
    names = [f"{RECORDED_STEP}#{number}" for number in range(len(spans))]
    threads, stacks = np.full(len(spans), thread, np.int32), np.full(len(spans), -1, np.int32)
    marked = with_host_rows(timeline, HostKind.ANNOTATION, threads, start, end, names, stacks)
    return replace(marked, meta=replace(timeline.meta, step_marks=by))
