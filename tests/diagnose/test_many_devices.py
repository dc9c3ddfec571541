"""A trace may name any number of devices: what they cost grows linearly, and their turns are exact."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from traces import TraceBuilder

import unstall
from unstall.diagnose.analyse import analyse
from unstall.diagnose.devices import one_at_work, waits_for_others
from unstall.diagnose.run import Run
from unstall.result import IDLE_CAUSES
from unstall.timeline.intervals import Intervals


def _run(work: list[tuple[int, int, int]]) -> Run:
    """Devices that work in turns: (device, µs of its kernel, device whose kernel it waits for) a step of work."""
    trace = TraceBuilder()
    for device, us, other in work:
        with trace.op("aten::add"):
            if other != device:
                trace.stream_wait(trace.record(stream=7, device=other), stream=7, device=device)
            trace.launch("kernel", us, device=device)
    return analyse(trace.timeline())


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200), st.integers(0, 3)), min_size=2, max_size=20))
def test_the_time_at_which_one_device_works_is_that_of_the_union_without_the_overlap(
    work: list[tuple[int, int, int]],
) -> None:
    run = _run(work)
    several, some = Intervals.none(), Intervals.none()
    for spans in run.work(run.ops_inside).values():
        several |= some & spans
        some |= spans
    assert one_at_work(run) == (some - several).clip(*run.window).total


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200), st.integers(0, 3)), min_size=2, max_size=20))
def test_a_device_waits_for_others_where_others_work_for_half_of_its_wait(work: list[tuple[int, int, int]]) -> None:
    run = _run(work)
    found = waits_for_others(run)
    if len(run.by_device) < 2:
        assert found == []
        return
    of_each = run.work(run.ops_inside)
    for (accounts, gaps), turns in zip(run.by_device, found, strict=True):
        others = Intervals.none()
        for device, spans in of_each.items():
            others |= spans if device != accounts.device else Intervals.none()
        held = gaps.cause == IDLE_CAUSES.index("event")
        expected = np.flatnonzero(held & (2 * others.covered(gaps.start, gaps.end) >= gaps.length))
        assert turns.start.tolist() == gaps.start[expected].tolist()


@pytest.mark.slow
def test_thousands_of_devices_are_explained_in_time_that_grows_with_them(tmp_path: Path) -> None:
    took = []
    for count in (2_000, 8_000):
        trace = TraceBuilder()
        for device in range(count):
            with trace.op("aten::add"):
                trace.launch("kernel", 2, device=device)
        path = trace.write(tmp_path / f"{count}.json")
        began = time.process_time()
        result = unstall.explain(path).result
        took.append(time.process_time() - began)
        assert len(result.by_device) == 64
    assert took[1] < 8 * took[0]
    assert took[1] < 30
