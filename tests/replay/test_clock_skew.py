"""How far apart the clocks are is read off what cannot be: effects before their causes."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.timeline.clock_skew import clock_skew
from unstall.timeline.columns import Timeline


def program() -> Timeline:
    trace = TraceBuilder()
    for _ in range(20):
        trace.launch("gemm", 200)
        trace.launch("gemm", 300)
        trace.sync()
        trace.work(50)
    return trace.timeline()


def shifted(timeline: Timeline, ns: int) -> Timeline:
    """The device's clock runs so far ahead of the host's."""
    device = timeline.device
    return replace(timeline, device=replace(device, start=device.start + ns, end=device.end + ns))


def test_a_file_in_order_shows_none() -> None:
    assert clock_skew(program()) == 0


@pytest.mark.parametrize("ns", [7_500, 20_000])
def test_a_wait_that_returns_before_its_op_ends_shows_it(ns: int) -> None:
    assert clock_skew(shifted(program(), ns)) == ns


def test_an_op_that_starts_before_its_launch_shows_it() -> None:
    """An op starts 7 µs after its launch began."""
    assert clock_skew(shifted(program(), -9_500)) == 2_500


def test_a_wait_for_other_work_shows_nothing() -> None:
    """Returning 300 µs before the last op ends, as the one before ends, it waited for that one."""
    timeline = program()
    end = timeline.host.end.copy()
    end[timeline.waits.host] -= 300_000
    assert clock_skew(replace(timeline, host=replace(timeline.host, end=np.maximum(end, timeline.host.start)))) == 0
