"""How far the host runs ahead, against counting by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from profiles import examples
from programs import Program, programs
from traces import TraceBuilder

from unstall.diagnose.queue_depth import depth_at_launch, depth_over_time
from unstall.timeline.columns import Timeline

A_FEW = examples(20)


def outstanding(timeline: Timeline, time: int, on: int | None = None) -> int:
    """Calls begun before or at a time whose last op ends after it; only those for one device if `on` is given."""
    host, device = timeline.host, timeline.device
    calls = np.unique(device.launch[(device.launch >= 0) & ((on is None) | (device.device == on))])
    done = [int(device.end[device.launch == call].max()) for call in calls]
    return sum(int(host.start[call]) <= time < end for call, end in zip(calls, done, strict=True))


@A_FEW
@given(programs())
def test_over_time_it_is_the_number_of_calls_begun_and_not_done(program: Program) -> None:
    timeline = program.timeline()
    times, depth = depth_over_time(timeline)
    assert depth.tolist() == [outstanding(timeline, int(time)) for time in times]
    assert (np.diff(times) > 0).all()


@A_FEW
@given(programs())
def test_at_a_launch_it_is_the_number_of_calls_before_it_that_are_not_done(program: Program) -> None:
    timeline = program.timeline()
    calls, depth = depth_at_launch(timeline)
    start = timeline.host.start[calls]
    assert (np.diff(start) >= 0).all()
    device = timeline.device
    on = np.array([int(device.device[device.launch == call][0]) for call in calls])
    for i, ahead in enumerate(depth):
        together = int(((start[i:] == start[i]) & (on[i:] == on[i])).sum())
        assert ahead == outstanding(timeline, int(start[i]), int(on[i])) - together


def test_a_graph_counts_as_one() -> None:
    trace = TraceBuilder()
    trace.graph(10 * [100])
    trace.launch("gemm", 10)
    assert depth_at_launch(trace.timeline())[1].tolist() == [0, 1]
