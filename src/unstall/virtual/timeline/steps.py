"""Steps that a program marked itself, by `unstall.step()` or by what helpers iterate or serve, as annotations of its
timeline."""

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


def with_marked_steps(timeline: Timeline, marks: Sequence[tuple[StepSource, int]]) -> Timeline:
    """By the marks, in ns, that come first by the rules of a recording: by hand, else of an optimizer, which is marked
    where graphs serve calls that step it, else of what is iterated or called. The last only where nothing else than
    the period of the launches would tell steps apart: items in flight have several."""
    sources = StepSources()
    for source, _ in marks:
        sources.add(source)
    leader = sources.leader()
    if leader is None:
        return timeline
    times = [at_ns for source, at_ns in marks if source == leader]
    if leader.kind == EXPLICIT:
        return with_steps(timeline, times)
    found_by = find_steps(timeline).found_by
    if len(times) < 2 or found_by == "annotation" or (found_by == "optimizer" and leader.kind != OPTIMIZER):
        return timeline
    return with_steps(timeline, times, cast("StepMarks", leader.kind))


def with_steps(timeline: Timeline, marks: Sequence[int], by: StepMarks = "explicit") -> Timeline:
    """The timeline with an annotation from each mark to the next, in ns.

    A lone mark ends a step from the start, and so does the first by hand where as much was launched before it as in a
    step; before others, a helper or a graph makes itself ready.
    They stand on the thread that made most calls, as the steps of a recording do.
    """
    host = timeline.host
    whole = len(marks) == 1 or (by == EXPLICIT and begins_with_a_step(timeline, np.array(marks, np.int64)))
    borders = [0, *marks] if whole else list(marks)
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
