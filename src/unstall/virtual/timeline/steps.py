"""Steps as annotations of a timeline, by the step boundaries that a program marked: `unstall.step()`, or helpers of
`unstall.fix`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from unstall.guest.step_source import EXPLICIT, OPTIMIZER, StepSource, StepSources
from unstall.locate.steps import RECORDED_STEP, begins_with_a_step, find_steps
from unstall.timeline.columns import HostKind, StepMarks, Timeline
from unstall.virtual.timeline.added_rows import with_host_rows


def with_found_steps(timeline: Timeline, boundaries: Sequence[tuple[StepSource, int]]) -> Timeline:
    """Add steps by the step boundaries (ns) that come first by a recording's rules: by hand; else an optimizer's, which
    are marked if graphs serve calls that step it; else those of iterated items or calls. The last are used only if
    nothing but the period of the launches would find steps, since items in flight have several boundaries.
    """
    sources = StepSources()
    for source, _ in boundaries:
        sources.add(source)
    leader = sources.leader()
    if leader is None:
        return timeline
    times = [at_ns for source, at_ns in boundaries if source == leader]
    if leader.kind == EXPLICIT:
        return with_steps(timeline, times)
    found_by = find_steps(timeline).found_by
    if len(times) < 2 or found_by == "annotation" or (found_by == "optimizer" and leader.kind != OPTIMIZER):
        return timeline
    return with_steps(timeline, times, cast("StepMarks", leader.kind))


def with_steps(timeline: Timeline, boundaries: Sequence[int], by: StepMarks = "explicit") -> Timeline:
    """Add an annotation from each step boundary to the next, in ns.

    The time before a lone boundary is a step. So is the time before the first one by hand, if as much was launched in
    it as in a step; before other boundaries, a helper or a graph prepares itself. The annotations are on the thread
    with most calls, like the steps of a recording.
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
