"""Adds steps to the timeline of a virtual run, as annotations. Their boundaries come from
`unstall.step()`, from helpers of `unstall.fix`, or from loops of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from msgspec.structs import replace

from unstall.guest.step_source import EXPLICIT, OPTIMIZER, StepSource, StepSources, step_spans
from unstall.locate.proving import proving_times
from unstall.locate.step_loops import calls_from_loops
from unstall.locate.step_spans import LEAST_PERIODS
from unstall.locate.steps import RECORDED_STEP, begins_with_a_step, find_steps
from unstall.timeline.columns import HostKind, StepMarks, Timeline
from unstall.virtual.timeline.added_rows import with_host_rows


def with_iterations(timeline: Timeline) -> Timeline:
    """Returns the timeline with the number of the step in which each fault happened, counted from
    1; -1 if the steps are unknown.

    A fault may end the program within a step. If it comes after the last complete step, it is in
    the step after that one, provided that earlier steps made the same call.
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


def with_found_steps(
    timeline: Timeline,
    boundaries: Sequence[tuple[StepSource, int]],
    loop_ends: Sequence[tuple[StepSource, int]] = (),
) -> Timeline:
    """Returns the timeline with annotations for its steps, as a recorder would add them.

    `boundaries` has moments at which a step may have begun, each as `(source, time in ns)`. Only
    those of the best source are used:

    - Best are calls of `unstall.step()`. They are always used.
    - Next are steps of an optimizer. They are in `boundaries` only from the first capture of a CUDA
      graph on, since replays add no annotation for them. If the timeline has as many annotated
      ones from then on, outside of the checks of `unstall.graphed`, its own are used.
    - Last are items of a loop, and calls of a model. As one step may have several items, they are
      used only if the timeline has neither annotated steps nor steps of an optimizer.

    `loop_ends` has the moments at which a loop over the items of a source ended. The last step of a
    loop ends with the loop.

    If `boundaries` is empty, calls that a framework's loop makes are used, as items would be.
    """
    sources = StepSources()
    for source, _ in boundaries:
        sources.add(source)
    leader = sources.leader_in_hindsight()
    if leader is None:
        return _with_steps_of_loops(timeline)
    times = [at_ns for source, at_ns in boundaries if source == leader]
    if leader.kind == EXPLICIT:
        return with_steps(timeline, times)
    found = find_steps(timeline)
    found_by = found.found_by
    # In its checks, `unstall.graphed` steps the optimizer too, mostly several times in a step of the program.
    checks = proving_times(timeline).covered(found.start, found.end) > 0
    if found_by == "optimizer" and np.count_nonzero(~checks & (found.end > times[0])) >= len(times) - 1:
        return timeline  # a graph that the program captured has no step
    if len(times) < 2 or found_by == "annotation" or (found_by == "optimizer" and leader.kind != OPTIMIZER):
        return timeline
    ends = [at_ns for source, at_ns in loop_ends if source == leader]
    return with_steps(timeline, times, cast("StepMarks", leader.kind), ends)


def _with_steps_of_loops(timeline: Timeline) -> Timeline:
    times = calls_from_loops(timeline).tolist()
    if len(times) < LEAST_PERIODS or find_steps(timeline).found_by in ("annotation", "optimizer"):
        return timeline
    return with_steps(timeline, times, "forward")


def with_steps(
    timeline: Timeline, boundaries: Sequence[int], by: StepMarks = "explicit", ends: Sequence[int] = ()
) -> Timeline:
    """Returns the timeline with an annotation for each step: from each of the boundaries (in ns) to
    the next, or to one of `ends` (in ns) if this comes first. The annotations are on the thread that
    makes most calls, as a recorder would have them.

    The time before the first boundary is a step, too, if there is only one boundary. It is also one
    if the boundaries are calls of `unstall.step()` and about as much work was launched before the
    first of them as in other steps. Otherwise, that time is the set-up of a helper or of a CUDA
    graph.

    `by` says what the boundaries are.
    """
    host = timeline.host
    whole = len(boundaries) == 1 or (by == EXPLICIT and begins_with_a_step(timeline, np.array(boundaries, np.int64)))
    borders = [0, *boundaries] if whole else list(boundaries)
    spans = step_spans(borders, ends)
    if not spans or not len(host):
        return timeline
    calls = host.thread[host.kind < HostKind.CALL]
    thread = int(np.bincount(calls if len(calls) else host.thread).argmax())
    start, end = np.array(spans, np.int64).T
    names = [f"{RECORDED_STEP}#{number}" for number in range(len(spans))]
    threads, stacks = np.full(len(spans), thread, np.int32), np.full(len(spans), -1, np.int32)
    marked = with_host_rows(timeline, HostKind.ANNOTATION, threads, start, end, names, stacks)
    return replace(marked, meta=replace(timeline.meta, step_marks=by))
