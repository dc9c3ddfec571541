"""Steps as annotations of a timeline, by the step boundaries that a program marked: `unstall.step()`, or helpers of
`unstall.fix`.
"""

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
