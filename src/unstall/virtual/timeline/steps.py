"""Steps that a program marked itself, by `unstall.step()` or by what helpers iterate or serve, as annotations of its
timeline."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import cast

import numpy as np

from unstall.guest.step_source import EXPLICIT, OPTIMIZER, StepSource, StepSources
from unstall.locate.steps import RECORDED_STEP, begins_with_a_step, find_steps
from unstall.read.nest import find_parents
from unstall.timeline.columns import Host, HostKind, StepMarks, Timeline, Waits
from unstall.virtual.timeline.rows import rows_of

_OUTERMOST_FIRST = {HostKind.ANNOTATION: 0, HostKind.PYTHON: 1, HostKind.OP: 2}


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
    names = [f"{RECORDED_STEP}#{number}" for number in range(len(spans))]
    added = _annotations(np.array(spans, np.int64), thread, len(timeline.strings))
    both = _concatenated(host, added)
    rank = np.full(len(both), 3)
    for kind, place in _OUTERMOST_FIRST.items():
        rank[both.kind == kind] = place
    order = np.lexsort((rank, -both.end, both.start, both.thread))
    number = np.full(len(both) + 1, -1, np.int32)
    number[order] = np.arange(len(both), dtype=np.int32)
    moved = rows_of(both, order)
    moved = replace(
        moved,
        parent=find_parents(moved.kind, moved.thread, moved.start, moved.end),
        op=number[moved.op],
        forward=number[moved.forward],
    )
    waits: Waits = timeline.waits
    return replace(
        timeline,
        strings=(*timeline.strings, *names),
        host=moved,
        device=replace(timeline.device, launch=number[timeline.device.launch]),
        waits=replace(waits, host=number[waits.host], record=number[waits.record]),
        races=replace(timeline.races, earlier=number[timeline.races.earlier], later=number[timeline.races.later]),
        meta=replace(timeline.meta, step_marks=by),
    )


def _annotations(spans: np.ndarray, thread: int, first_name: int) -> Host:
    count = len(spans)
    none = np.full(count, -1, np.int32)
    return Host(
        kind=np.full(count, HostKind.ANNOTATION, np.int8),
        thread=np.full(count, thread, np.int32),
        start=spans[:, 0],
        end=spans[:, 1],
        name=np.arange(first_name, first_name + count, dtype=np.int32),
        correlation=np.full(count, -1, np.int64),
        parent=none,
        op=none,
        forward=none,
        stack=none,
        shapes=none,
    )


def _concatenated(host: Host, more: Host) -> Host:
    return Host(*(np.concatenate((getattr(host, f.name), getattr(more, f.name))) for f in fields(Host)))
