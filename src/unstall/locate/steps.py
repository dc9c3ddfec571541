"""Finds the steps of a run: by annotations; if these do not show steps, by the calls of the
optimizer; if there are none, by the period with which launches repeat. If all of these fail, the
whole run is one step.
"""

from __future__ import annotations

import fnmatch
import re

from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.locate.proving import without_proving
from unstall.locate.step_annotations import (
    annotated,
    by_counter,
    by_known_programs,
    in_agreement,
    is_annotation,
    named,
)
from unstall.locate.step_in_a_loop import of_longest_loop
from unstall.locate.step_optimizer import begins_with_a_step, by_optimizer
from unstall.locate.step_period import by_period
from unstall.locate.step_spans import FoundBy, Steps, device_begins, steps_of, whole
from unstall.timeline.columns import I64, Timeline

__all__ = ["RECORDED_STEP", "FoundBy", "Steps", "begins_with_a_step", "device_begins", "find_steps"]

_PROFILER_STEP = re.compile(r"ProfilerStep(#\d+|\*)?$")
RECORDED_STEP = "unstall.step"
"""The name of the annotation that unstall's recorder puts around each step, without the number of the step."""

_RECORDED_STEP = re.compile(r"unstall\.step(#\d+)?$")


def find_steps(timeline: Timeline, name: str | None = None) -> Steps:
    """Finds the steps of a run. If `unstall.graphed` checks graphs in some of the steps, returns
    only the longest series of steps without these checks, because this series is the program's
    steady state.

    Args:
        timeline: A recorded run.
        name: The name of the annotation around each step, or a glob for it. The default is the name
            that the recorder was given. The default is ignored if the timeline has no annotations
            with this name.

    Raises:
        UsageError: There is no annotation with the name `name`.
    """
    return without_proving(timeline, _by_name(timeline, name) if name is not None else _found(timeline))


def _found(timeline: Timeline) -> Steps:
    told = timeline.meta.step
    if told is not None and len(_called(timeline, told)):
        return _by_name(timeline, told)
    # If recording cut steps by time, they do not correspond to steps of the program.
    marks = [] if timeline.meta.step_marks == "time" else [(RECORDED_STEP, _RECORDED_STEP)]
    for called, pattern in (*marks, ("ProfilerStep", _PROFILER_STEP)):
        rows = annotated(timeline, named(pattern))
        if not len(rows):
            continue
        start, end = timeline.host.start[rows], timeline.host.end[rows]
        if called == RECORDED_STEP:
            return of_longest_loop(timeline, "annotation", called, start, end)
        return steps_of(timeline, "annotation", called, start, end)
    if known := by_known_programs(timeline):
        return known
    counted, hint = by_counter(timeline, _RECORDED_STEP)
    if counted:
        return counted
    found = by_optimizer(timeline)
    if found is None:
        found, repeats = by_period(timeline)
        found = found or replace(whole(timeline), repeats=repeats)
    agreed = in_agreement(timeline, found)
    return replace(agreed, hint=hint) if hint and agreed is found and len(found) == 1 else agreed


def _by_name(timeline: Timeline, name: str) -> Steps:
    rows = _called(timeline, name)
    if not len(rows):
        known = sorted({timeline.strings[i] for i in timeline.host.name[is_annotation(timeline)]})
        shown = ", ".join(repr(text) for text in known[:8]) or "none"
        raise UsageError(f"no annotation is called {name!r}; there are: {shown}")
    return steps_of(timeline, "annotation", name, timeline.host.start[rows], timeline.host.end[rows])


def _called(timeline: Timeline, name: str) -> I64:
    """Returns the annotations whose name is `name`, or matches the glob `name`, as rows of `timeline.host`."""
    return annotated(timeline, lambda text: text == name or fnmatch.fnmatchcase(text, name))
