"""Adds steps to a timeline as annotations. Step boundaries come from `unstall.step()` or helpers of `unstall.fix`."""

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


def with_found_steps(timeline: Timeline, boundaries: Sequence[tuple[StepSource, int]]) -> Timeline:
    """Adds steps at the boundaries (ns) of the best source, as a recording does.

    Explicit calls are the best source, then an optimizer, then iterated items or calls. An optimizer has boundaries
    only if calls that step it are graph replays. Items in flight have several boundaries, so items and calls are used
    only if steps could otherwise only be found by the period of the launches. If there are no boundaries, the calls of
    a framework's loop are used under the same condition.
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
    """Adds an annotation from each step boundary (ns) to the next.

    If there is only one boundary, the time before it is a step. The time before the first of several explicit
    boundaries is a step if as much was launched in it as in other steps. The time before other boundaries is setup of a
    helper or a graph, not a step. As in a recording, the annotations are on the thread with the most calls.
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
