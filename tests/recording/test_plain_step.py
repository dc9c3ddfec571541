"""The plain step time, of stretches that a small simulation of a loop's host and device makes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.recording.plain import Plain
from unstall.recording.trace.on_device import on_device
from unstall.recording.trace.plain_step import plain_step
from unstall.timeline.columns import I64

_MS = 1_000_000
NEVER = 10**6


def timed(
    steps: int,
    host_ms: float,
    busy_ms: float,
    *,
    wait_every: int = NEVER,
    ahead: int = 20,
    pauses: Collection[int] = (),
    pause_ms: float = 0,
    before: int = 50,
    which: str = "before",
) -> Plain:
    """A loop whose host asks for a step's work in `host_ms`, at most so many steps `ahead` of a device that takes
    `busy_ms` for it, and waits for that at some steps; at others it pauses, once the device has done all."""
    now, free, done = 0.0, 0.0, [0.0] * (ahead + 1)
    marks, reached = [], []
    for number in range(-before, steps + 1):
        now = max(now + host_ms, done[-ahead - 1])
        free = max(free, now) + busy_ms
        done.append(free)
        if number % wait_every == 0:
            now = free
        if number in pauses:
            now = free = max(now, free) + pause_ms
        if number >= 0:
            marks.append(round(now * _MS))
            reached.append(max(now, free) * _MS)
    of_device = (reached[-1] - reached[0]) / steps
    return Plain(which, steps, (marks[-1] - marks[0]) / steps, of_device, tuple(marks))


def steady(step_ms: float) -> I64:
    return np.full(5, round(step_ms * _MS), np.int64)


speeds = st.floats(0.5, 50)


@given(speeds, speeds, st.integers(1, 40), st.integers(1, 60), st.integers(20, 200))
def test_a_host_that_runs_ahead_and_waits_now_and_then_has_next_to_no_pauses(
    host_ms: float, busy_ms: float, wait_every: int, ahead: int, steps: int
) -> None:
    """A wait may pass for a pause, but no more is left out than the device idled: some hundredths at most."""
    plain = timed(steps, host_ms, busy_ms, wait_every=wait_every, ahead=ahead)
    found = plain_step([plain], steady(max(host_ms, busy_ms)), busy_ms * _MS)
    assert plain.device_ns is not None
    idle_ns = plain.device_ns - busy_ms * _MS
    assert found.ns == pytest.approx(plain.device_ns, rel=0.08)
    assert found.ns >= plain.device_ns - max(idle_ns, 0) - 1


@given(
    speeds,
    speeds,
    st.sampled_from([1, 4, NEVER]),
    st.sets(st.integers(2, 98), min_size=1, max_size=4),
    st.floats(10, 500),
)
def test_pauses_that_no_recorded_step_had_are_left_out(
    host_ms: float, busy_ms: float, wait_every: int, pauses: set[int], times: float
) -> None:
    """As many steps ahead as the device is, each side of a pause is that much of a step off."""
    step = max(host_ms, busy_ms)
    without, paused = (
        timed(100, host_ms, busy_ms, wait_every=wait_every, ahead=3, pauses=at, pause_ms=times * step)
        for at in ((), pauses)
    )
    found = plain_step([paused], steady(step), busy_ms * _MS)
    assert found.paused == len(pauses)
    assert found.ns == pytest.approx(without.device_ns, rel=0.1)
    assert "pause" in found.notes[0]


def test_what_was_left_out_is_said_with_what_it_makes_of_a_step() -> None:
    plain = timed(100, 10, 2, wait_every=1, pauses={20, 60}, pause_ms=1_000)
    found = plain_step([plain], steady(12), 2 * _MS)
    assert found.ns == pytest.approx(12 * _MS)
    assert found.notes == [
        "2 of 100 steps timed without the recording had a pause of 1.00 s (mean), as for an evaluation, a new epoch or "
        "a late batch, and no recorded step had: the plain step time is without, and 32.0 ms with them"
    ]
    assert found.stretches[0].host_ns == pytest.approx(12e6)
    assert found.stretches[0].device_ns == pytest.approx(12e6)


def test_where_a_recorded_step_had_one_too_all_is_counted() -> None:
    plain = timed(100, 10, 2, pauses={20, 60}, pause_ms=1_000)
    recorded = steady(10)
    recorded[3] += 1_000 * _MS
    assert plain_step([plain], recorded, 2 * _MS).ns == plain.device_ns


@pytest.mark.parametrize("every", [3, 8, 16])
def test_pauses_that_come_again_and_again_are_what_the_program_does(every: int) -> None:
    """So many batches at once, as a DataLoader's workers make them that are too slow for the loop."""
    plain = timed(99, 10, 2, pauses=range(0, 100, every), pause_ms=100)
    assert plain_step([plain], steady(10), 2 * _MS).ns == plain.device_ns


@given(speeds, speeds, st.floats(0.2, 50), st.integers(3, 30))
def test_the_time_between_loops_is_left_out_whatever_it_is_and_however_often_it_comes(
    host_ms: float, busy_ms: float, times: float, every: int
) -> None:
    step = max(host_ms, busy_ms)
    without = timed(90, host_ms, busy_ms, wait_every=every)
    plain = timed(90, host_ms, busy_ms, wait_every=every, pauses=range(0, 91, every), pause_ms=times * step)
    ends = [plain.marks_ns[number] - round(times * step * _MS) for number in range(every, 91, every)]
    assert without.device_ns is not None
    found = plain_step([replace(plain, loop_ends_ns=tuple(ends))], steady(step), busy_ms * _MS)
    assert found.ns == pytest.approx(without.device_ns, rel=0.05)


def test_pauses_in_both_stretches_are_counted_together() -> None:
    before, after = (timed(10, 10, 2, pauses={5}, pause_ms=100, which=which) for which in ("before", "after"))
    assert plain_step([before], steady(10), 2 * _MS).paused == 1
    assert plain_step([before, after], steady(10), 2 * _MS).paused == 0


def test_without_a_device_the_hosts_time_is_told() -> None:
    marks = np.cumsum([0, *[5 * _MS] * 20, 900 * _MS, *[5 * _MS] * 19]).tolist()
    plain = Plain("before", 40, marks[-1] / 40, None, tuple(marks))
    found = plain_step([plain], steady(5), 0.0)
    assert found.ns == pytest.approx(5 * _MS)
    assert found.paused == 1


def test_stretches_that_differ_are_said_to_if_pauses_do_not_make_it() -> None:
    before, paused, slow = (
        timed(100, 10, 2, wait_every=1),
        timed(100, 10, 2, wait_every=1, pauses={50}, pause_ms=900, which="after"),
        timed(100, 15, 2, wait_every=1, which="after"),
    )
    differ = "steps before the recording and after it, timed without it, differ by more than 10 %"
    assert differ not in plain_step([before, paused], steady(12), 2 * _MS).notes
    assert plain_step([before, slow], steady(12), 2 * _MS).notes == [differ]
    assert plain_step([before, slow], steady(12), 2 * _MS).ns == pytest.approx(14.5 * _MS)


def test_the_devices_clock_counts_only_where_it_measured_all() -> None:
    before, after = Plain("before", 5, 100.0, 96.0, ()), Plain("after", 5, 104.0, 100.0, ())
    nothing = np.zeros(0, np.int64)
    assert plain_step([before, after], nothing, 0.0).ns == 98.0
    assert plain_step([before, Plain("after", 5, 104.0, None, ())], nothing, 0.0).ns == 102.0


def test_the_devices_own_time_is_without_what_it_waits_for_the_host() -> None:
    """Ops 0 to 10, 30 to 40 and 45 to 50, the second launched at 25, the third before the second ended: idle for its
    host from 10 to 25, and by itself from 25 to 30 and from 40 to 45."""
    start, end = (np.array(times, np.int64) for times in ((45, 0, 30), (50, 10, 40)))
    of_call, ended = (np.array(each, np.int64) for each in ((7, 1, 4), (38, 0, 25)))
    correlation = np.array((7, 1, 4), np.int64)
    assert on_device((start, end, correlation), (of_call, ended)).own_time_ns == 50 - 15
    unknown, none = np.full(3, -1, np.int64), np.zeros(0, np.int64)
    assert on_device((start, end, unknown), (of_call, ended)).own_time_ns == 10 + 10 + 5
    assert on_device((start, end, correlation), (none, none)).own_time_ns == 10 + 10 + 5
    assert on_device((none, none, none), (of_call, ended)).own_time_ns == 0


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50), st.integers(0, 1000)), min_size=1, max_size=20))
def test_the_devices_own_time_is_from_what_it_was_at_work_to_all_of_it(ops: list[tuple[int, int, int]]) -> None:
    start, length, before = np.array(ops, np.int64).T
    numbers = np.arange(len(ops))
    found = on_device((start, start + length, numbers), (numbers, start - before)).own_time_ns
    at_work = np.zeros(1100, np.bool_)
    for begun, took, _ in ops:
        at_work[begun : begun + took] = True
    assert at_work.sum() <= found <= (start + length).max() - start.min()
