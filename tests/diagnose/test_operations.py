"""Which calls belong together where no operators were recorded: a copy, and the wait for it that follows at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from traces import TraceBuilder

from unstall.locate.operations import operations
from unstall.timeline.columns import HostKind, Timeline


def paired(trace: TraceBuilder) -> list[tuple[str, str]]:
    """(copy, wait) by their names, of each pair."""
    timeline: Timeline = trace.timeline()
    host = timeline.host
    operation = operations(timeline, host.op)
    waits = np.flatnonzero((host.kind == HostKind.SYNC) & (operation >= 0))
    assert (operation[operation[waits]] == operation[waits]).all()
    names = [(timeline.text(int(host.name[operation[row]])), timeline.text(int(host.name[row]))) for row in waits]
    assert (operation >= 0).sum() == 2 * len(names)
    return names


@pytest.fixture
def trace() -> TraceBuilder:
    made = TraceBuilder(operators=False)
    made.launch("gemm", 100)
    return made


def test_a_copy_and_the_wait_for_its_stream_are_one(trace: TraceBuilder) -> None:
    with trace.frame("train.py", 41, "step"):
        trace.copy("DtoH", 1, size=4)
        trace.sync()
    assert paired(trace) == [("cudaMemcpyAsync", "cudaStreamSynchronize")]


def test_each_wait_belongs_to_the_copy_before_it(trace: TraceBuilder) -> None:
    for memory in ("Pageable", "Pinned"):
        trace.copy("HtoD", 1)
        trace.copy("DtoH", 1, memory=memory)
        trace.sync()
    assert len(paired(trace)) == 2


def test_a_guard_may_look_at_the_wait_between_the_copy_and_the_wait(trace: TraceBuilder) -> None:
    """Seen on an H100: `.item()` under `no_sync("count")`, recorded, waited 0.3 to 2.1 ms after its copy."""
    with trace.frame("train.py", 41, "step"):
        trace.copy("DtoH", 1, size=4)
        trace.work(2_100)
        trace.sync()
    assert paired(trace) == [("cudaMemcpyAsync", "cudaStreamSynchronize")]


def python_between(trace: TraceBuilder) -> None:
    trace.copy("DtoH", 1)
    trace.work(30)
    trace.sync()


def a_call_between(trace: TraceBuilder) -> None:
    trace.copy("DtoH", 1)
    trace.launch("gemm", 1)
    trace.sync()


def two_lines(trace: TraceBuilder) -> None:
    with trace.frame("train.py", 41, "step"):
        trace.copy("DtoH", 1)
    with trace.frame("train.py", 42, "step"):
        trace.sync()


def another_stream(trace: TraceBuilder) -> None:
    trace.launch("gemm", 1, stream=20)
    trace.copy("DtoH", 1)
    trace.sync(stream=20)


def the_whole_device(trace: TraceBuilder) -> None:
    trace.copy("DtoH", 1)
    trace.sync("device")


def another_thread(trace: TraceBuilder) -> None:
    trace.copy("DtoH", 1)
    with trace.on_thread(500):
        trace.sync()


@pytest.mark.parametrize(
    "between", [python_between, a_call_between, two_lines, another_stream, the_whole_device, another_thread]
)
def test_others_are_not(trace: TraceBuilder, between: Callable[[TraceBuilder], None]) -> None:
    between(trace)
    assert paired(trace) == []


def test_an_event_is_no_stream(trace: TraceBuilder) -> None:
    event = trace.record()
    trace.copy("DtoH", 1)
    trace.event_sync(event)
    assert paired(trace) == []


def test_where_there_are_operators_they_alone_tell() -> None:
    made = TraceBuilder()
    made.item()
    made.copy("DtoH", 1)
    made.sync()
    timeline = made.timeline()
    assert operations(timeline, timeline.host.op) is timeline.host.op


def test_nothing_recorded_is_nothing_together() -> None:
    timeline = TraceBuilder().timeline()
    assert operations(timeline, timeline.host.op).tolist() == []
