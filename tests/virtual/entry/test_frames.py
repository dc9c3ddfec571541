"""Stacks as slices of time: what a trace shows of the Python that ran."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.timeline.columns import Host, HostKind
from unstall.virtual.profiler.frames import slices_of


def test_frames_enclose_an_annotation_in_which_nothing_else_ran() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 10, "main"):
        trace.work(10)
        trace.next_batch(50)
    timeline = trace.timeline()
    host = timeline.host
    (row,) = np.flatnonzero(host.kind == HostKind.ANNOTATION)
    calls = Host(**{column: getattr(host, column)[host.kind != HostKind.PYTHON] for column in Host.__struct_fields__})
    slices = slices_of(replace(timeline, host=replace(calls, parent=np.full(len(calls), -1, np.int32))))
    enclosing = (slices.start < host.start[row]) & (slices.end > host.end[row])
    assert [timeline.text(timeline.lines.function[line]) for line in slices.line[enclosing]] == ["main", "__next__"]
