"""Columns of device ops → how long each call kept the device busy, and what escaped it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.measuring.device_time.device_ops import DeviceOps, StreamLink, StreamStep

MAIN, SIDE = 7, 13


def observed(ops: list[tuple[int, int, int]], calls: int, links: tuple[StreamLink, ...] = ()) -> DeviceOps:
    """`ops` are calls, starts and ends."""
    columns = np.array(ops, np.int64).reshape(-1, 3)
    count = len(columns)
    small = np.zeros(count, np.int8)
    return DeviceOps(
        calls=calls,
        call=columns[:, 0],
        start=columns[:, 1],
        end=columns[:, 2],
        stream=np.full(count, MAIN),
        kind=small,
        direction=small,
        bytes=np.full(count, -1),
        graph=np.zeros(count, np.bool_),
        place=(None,) * count,
        main_stream=MAIN,
        links=links,
    )


def test_ops_side_by_side_count_once_and_gaps_not_at_all() -> None:
    seen = observed([(0, 10, 20), (0, 15, 30), (0, 40, 50)], 1)
    assert seen.busy_ns().tolist() == [30]
    assert seen.span_ns().tolist() == [40]


def test_a_call_without_ops_takes_nothing() -> None:
    seen = observed([(1, 5, 9)], 3)
    assert seen.busy_ns().tolist() == [0, 4, 0]
    assert seen.span_ns().tolist() == [0, 4, 0]


ops = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 15)), max_size=30)


@given(ops)
def test_busy_time_is_the_number_of_nanoseconds_that_are_covered(drawn: list[tuple[int, int, int]]) -> None:
    rows = [(call, start, start + length) for call, start, length in drawn]
    wanted = [
        len({ns for call, start, end in rows if call == number for ns in range(start, end)}) for number in range(4)
    ]
    assert observed(rows, 4).busy_ns().tolist() == wanted


def op(stream: int) -> StreamLink:
    return StreamLink(0, StreamStep.OP, stream)


def test_work_that_nobody_waits_for_escapes() -> None:
    assert observed([], 1, (op(MAIN), op(SIDE))).escaped_streams() == {SIDE}


def test_work_that_the_calls_stream_waits_for_does_not() -> None:
    joined = (op(SIDE), StreamLink(0, StreamStep.RECORD, SIDE, 1), StreamLink(0, StreamStep.WAIT, MAIN, 1))
    assert observed([], 1, joined).escaped_streams() == set()


def test_work_after_the_event_that_is_waited_for_escapes() -> None:
    early = (StreamLink(0, StreamStep.RECORD, SIDE, 1), op(SIDE), StreamLink(0, StreamStep.WAIT, MAIN, 1))
    assert observed([], 1, early).escaped_streams() == {SIDE}


def test_joining_through_a_third_stream_counts() -> None:
    third = 21
    through = (
        op(SIDE),
        StreamLink(0, StreamStep.RECORD, SIDE, 1),
        StreamLink(0, StreamStep.WAIT, third, 1),
        op(third),
        StreamLink(0, StreamStep.RECORD, third, 2),
        StreamLink(0, StreamStep.WAIT, MAIN, 2),
    )
    assert observed([], 1, through).escaped_streams() == set()


def test_what_the_host_waits_for_does_not_escape() -> None:
    for wait in (StreamLink(0, StreamStep.HOST_WAIT, SIDE), StreamLink(0, StreamStep.HOST_WAIT, -1)):
        assert observed([], 1, (op(SIDE), wait)).escaped_streams() == set()
    by_event = (op(SIDE), StreamLink(0, StreamStep.RECORD, SIDE, 4), StreamLink(0, StreamStep.HOST_WAIT, -2, 4))
    assert observed([], 1, by_event).escaped_streams() == set()
