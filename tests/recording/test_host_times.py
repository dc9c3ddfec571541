"""What steps of the host alone tell of those that were recorded with the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.cupti.driver_calls import DRIVER
from unstall.recording.trace.host_times import TIMED, host_times, kinds_of
from unstall.timeline.columns import HostKind

LAUNCH, COPY, SYNC = HostKind.LAUNCH, HostKind.COPY, HostKind.SYNC
_MAIN, _AUTOGRAD, _OTHER = 10, 11, 12
_ZERO = 9_007_199_254_740_993  # no float64


@dataclass(frozen=True)
class Made:
    """A call of a step: which, by whom, how long the host had worked before it, and how long it took; ns."""

    what: int
    thread: int
    work: int
    took: int


def run(steps: Sequence[Sequence[Made]], begun: int, rest: int = 5) -> tuple[np.ndarray, list[int]]:
    """Steps one after the other, as tables of calls have them, and their borders."""
    rows, borders, now = [], [begun], begun
    for step in steps:
        for call in step:
            now += call.work
            rows.append((now, now + call.took, call.what, call.thread))
            now += call.took
        now += rest
        borders.append(now)
    return np.array(rows, TIMED), borders


def slower(steps: Sequence[Sequence[Made]], work: int, took: int) -> list[list[Made]]:
    """Each call after so many ns more of work, and longer by so many."""
    return [[Made(each.what, each.thread, each.work + work, each.took + took) for each in step] for step in steps]


CALLS = st.builds(
    Made,
    st.sampled_from([LAUNCH, COPY, SYNC]),
    st.sampled_from([_MAIN, _AUTOGRAD]),
    st.integers(0, 50),
    st.integers(1, 50),
)
STEPS = st.lists(CALLS, max_size=12)


@given(step=STEPS, count=st.integers(1, 4), alone=st.integers(1, 5), work=st.integers(0, 9), took=st.integers(0, 9))
def test_the_same_steps_are_told_moment_by_moment(
    step: list[Made], count: int, alone: int, work: int, took: int
) -> None:
    recorded = run(slower([step] * count, work, took), _ZERO)
    timed = run([step] * alone, 7)
    told = host_times(*recorded, *timed, [_MAIN, _AUTOGRAD])
    assert told is not None
    assert (np.diff(told.recorded) >= 0).all()
    assert (np.diff(told.alone) >= 0).all()
    borders, marks = np.array(recorded[1]), np.array(timed[1])
    assert (told.recorded[0], told.alone[0]) == (borders[0], 0)
    assert (told.recorded[-1], told.alone[-1]) == (borders[-1], count * (marks[1] - marks[0]))
    anchors = set(zip(told.recorded.tolist(), told.alone.tolist(), strict=True))
    length = int(marks[1] - marks[0])
    for number in range(count):
        mine = slice(number * len(step), (number + 1) * len(step))
        for with_it, without in zip(recorded[0][mine].tolist(), timed[0][: len(step)].tolist(), strict=True):
            for side in (0, 1):
                assert (with_it[side], number * length + without[side] - 7) in anchors


def test_of_several_the_median_counts() -> None:
    recorded = run([[Made(LAUNCH, _MAIN, 20, 10)]], 0)
    timed = run([[Made(LAUNCH, _MAIN, work, 5)] for work in (10, 12, 500)], 0, rest=3)
    told = host_times(*recorded, *timed, [_MAIN])
    assert told is not None
    assert told.recorded.tolist() == [0, 20, 30, 35]
    assert told.alone.tolist() == [0, 12, 17, 20]


def test_steps_that_are_like_no_other_are_as_long_as_they_are() -> None:
    usual, other = [Made(LAUNCH, _MAIN, 10, 10)], [Made(LAUNCH, _MAIN, 10, 10), Made(COPY, _MAIN, 10, 10)]
    recorded, timed = run(slower([usual, other, usual], 5, 0), 0), run([usual] * 3, 0)
    told = host_times(*recorded, *timed, [_MAIN])
    assert told is not None
    borders = dict(zip(told.recorded.tolist(), told.alone.tolist(), strict=True))
    assert [borders[each] for each in recorded[1]] == [0, 25, 50, 75]


@pytest.mark.parametrize(
    "steps",
    [
        [[Made(COPY, _MAIN, 10, 10)]] * 3,
        [[Made(LAUNCH, _AUTOGRAD, 10, 10)]] * 3,
        [[Made(LAUNCH, _MAIN, 10, 10)] * 2] * 3,
        [],
    ],
)
def test_steps_that_make_other_calls_tell_nothing(steps: list[list[Made]]) -> None:
    recorded = run([[Made(LAUNCH, _MAIN, 10, 10)]] * 3, 0)
    assert host_times(*recorded, *run(steps, 0), [_MAIN, _AUTOGRAD]) is None


def test_calls_of_other_threads_do_not_count() -> None:
    step = [Made(LAUNCH, _MAIN, 10, 10)]
    recorded = run([[*step, Made(LAUNCH, _OTHER, 3, 3)]], 0)
    told = host_times(*recorded, *run([step], 0), [_MAIN])
    assert told is not None
    assert told.recorded.tolist() == [0, 10, 20, 31]


def test_calls_that_give_no_work_and_wait_for_none_do_not_count() -> None:
    usual = [Made(LAUNCH, _MAIN, 10, 10), Made(COPY, _MAIN, 10, 10)]
    polls = [usual[0], *[Made(HostKind.CALL, _MAIN, 1, 1), Made(HostKind.EVENT_RECORD, _MAIN, 1, 1)] * 2, usual[1]]
    told = host_times(*run([polls] * 2, 0), *run([usual] * 3, 0), [_MAIN])
    assert told is not None
    assert told.recorded.tolist()[:6] == [0, 10, 20, 38, 48, 53]
    assert told.alone.tolist()[:6] == [0, 10, 20, 30, 40, 45]


def test_calls_within_calls_do_not_count() -> None:
    """As where torch's profiler records the driver's call within that of the runtime."""
    within = [(12, 28, LAUNCH, _MAIN), (10, 20, LAUNCH, _MAIN), (10, 10, LAUNCH, _MAIN)]
    recorded = np.array([*within, (10, 30, LAUNCH, _MAIN), (12, 20, LAUNCH, _AUTOGRAD)], TIMED)
    timed = np.array([(10, 20, LAUNCH, _MAIN), (12, 18, LAUNCH, _AUTOGRAD)], TIMED)
    told = host_times(recorded, [0, 50], timed, [0, 40], [_MAIN, _AUTOGRAD])
    assert told is not None
    assert (told.recorded.tolist(), told.alone.tolist()) == ([0, 10, 12, 20, 30, 50], [0, 10, 12, 18, 20, 40])


def test_calls_of_the_driver_are_told_apart_by_what_they_do() -> None:
    by_name = {name: number for number, name in DRIVER.items()}
    expected = {
        "cuLaunchKernel": HostKind.LAUNCH,
        "cuLaunchKernelEx": HostKind.LAUNCH,
        "cuGraphLaunch": HostKind.GRAPH_LAUNCH,
        "cuMemcpyHtoDAsync_v2": HostKind.COPY,
        "cuMemsetD8Async": HostKind.MEMSET,
        "cuStreamSynchronize": HostKind.SYNC,
        "cuEventQuery": HostKind.CALL,
    }
    calls = np.array([(1, 2, by_name[name], _MAIN) for name in expected] + [(1, 2, 2**32 - 1, _MAIN)], TIMED)
    assert kinds_of(calls)["what"].tolist() == [*expected.values(), HostKind.CALL]


def test_a_call_that_reaches_beyond_its_step_ends_with_it() -> None:
    calls = np.array([(10, 90, LAUNCH, _MAIN)], TIMED)
    told = host_times(calls, [0, 50], calls, [0, 40], [_MAIN])
    assert told is not None
    assert told.recorded.tolist() == [0, 10, 50, 50]
    assert told.alone.tolist() == [0, 10, 40, 40]


def test_a_long_recording_is_told_by_fewer_moments() -> None:
    step = [Made(LAUNCH, _MAIN, 1, 1)] * 60_000
    recorded, timed = run([step, step], 0), run([step], 0)
    told = host_times(*recorded, *timed, [_MAIN])
    assert told is not None
    assert len(told) <= 100_000
    assert (told.recorded[[0, -1]] == [0, recorded[1][-1]]).all()
