"""The first line whose number never arrived is the line whose work failed."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the ring is there for Linux alone")

from blaming.device import Device, device, kernel, record, run, wait  # noqa: E402

from unstall.blaming import _blame  # noqa: E402
from unstall.blaming.culprit import unfinished  # noqa: E402

STREAMS = 3


def suspects(on: Device) -> list[tuple[int, bool]]:
    """The lines that may have failed, and whether they may only have waited, in the order of their likelihood."""
    ring = on.ring()
    places = [(ring.place(int(each.entries[0]["line"])), each.blocked) for each in unfinished(ring)]
    return [(place.line, blocked) for place, blocked in places if place is not None]


def test_one_stream_names_the_line_of_the_first_unfinished_work() -> None:
    with device() as on:
        run(on, [kernel(0), kernel(0), kernel(0), kernel(0)])
        on.does(0, 2)
        assert suspects(on) == [(3, False)]


@examples(20)  # each has a file of its own
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.data())
def test_one_stream_names_the_true_line_of_any_program(per_line: list[int], data: st.DataObject) -> None:
    lines = ["; ".join([kernel(0)] * count) for count in per_line]
    fails = data.draw(st.integers(0, sum(per_line) - 1))
    true = next(number for number in range(1, len(lines) + 1) if sum(per_line[:number]) > fails)
    with device() as on:
        run(on, lines)
        on.does(0, fails)
        assert suspects(on) == [(true, False)]


@examples(20)  # each has a file of its own
@given(st.lists(st.integers(0, STREAMS - 1), min_size=1, max_size=30), st.data())
def test_several_streams_suspect_the_true_line_and_at_most_one_of_each_other_stream(
    streams: list[int], data: st.DataObject
) -> None:
    fails = data.draw(st.integers(0, len(streams) - 1))
    with device() as on:
        run(on, [kernel(stream) for stream in streams])
        for stream in range(STREAMS):
            of_stream = [number for number, each in enumerate(streams) if each == stream]
            done = (
                of_stream.index(fails)
                if stream == streams[fails]
                else data.draw(st.integers(0, len(of_stream)), label=f"done of {stream}")
            )
            on.does(stream, done)
        found = suspects(on)
    assert (fails + 1, False) in found
    assert len(found) <= len(set(streams))


def test_work_behind_an_event_of_unfinished_work_is_blocked() -> None:
    with device() as on:
        run(on, [kernel(1), record(1, 9), wait(2, 9), kernel(2), kernel(1)])
        assert suspects(on) == [(1, False), (4, True)]


def test_a_stream_that_others_saw_finished_is_no_suspect() -> None:
    with device() as on:
        run(on, [kernel(1), record(1, 9), wait(2, 9), kernel(2), kernel(2), kernel(2)])
        on.does(2, 2)
        assert suspects(on) == [(6, False)]


def test_a_stream_that_has_recorded_an_event_is_marked_to_its_end() -> None:
    with device() as on:
        run(on, [kernel(1), record(1, 9), kernel(2), kernel(2)])
        on.does(1, 1)
        on.does(2, 0)
        assert suspects(on) == [(3, False)]


def test_lines_between_which_no_mark_stands_are_named_together() -> None:
    with device() as on:
        on.refuses = True
        run(on, [kernel(0), kernel(0), kernel(0)])
        (only,) = unfinished(on.ring())
        assert [on.ring().place(int(each["line"])).line for each in only.entries] == [1, 2, 3]  # type: ignore[union-attr]


def test_marks_are_put_only_where_the_line_changes() -> None:
    with device() as on:
        run(on, ["for _ in range(100): " + kernel(0), kernel(0)])
        assert on.marks == {0: [(100, 0, 100)]}


ONE_AT_A_TIME = (1e-6, 0, 10_000)
"""A budget for one mark in ten seconds, and a hundred of them in advance."""


def marks_of_20_lines(budget: tuple[float, int, int], *, keeps_up: bool) -> int:
    with device() as on:
        on.keeps_up = keeps_up
        _blame.budget(*budget)
        run(on, [kernel(0)] * 20)
        return len(on.marks.get(0, []))


def test_a_device_that_keeps_up_is_marked_seldom() -> None:
    assert marks_of_20_lines(ONE_AT_A_TIME, keeps_up=True) == 1


def test_a_device_that_is_behind_is_marked_at_each_line() -> None:
    assert marks_of_20_lines(ONE_AT_A_TIME, keeps_up=False) == 19


def test_a_device_that_is_behind_is_marked_no_more_than_time_was_saved_for() -> None:
    assert marks_of_20_lines((1e-6, 0, 100_000), keeps_up=False) == 10


def test_the_first_marks_are_put_whatever_they_cost() -> None:
    assert marks_of_20_lines((0.0, 5, 0), keeps_up=True) == 5


@examples(20)  # each has a file of its own
@given(st.integers(2, 20), st.integers(0, 20), st.data())
def test_with_few_marks_the_true_line_is_among_those_up_to_the_next_mark(
    lines: int, marks: int, data: st.DataObject
) -> None:
    fails = data.draw(st.integers(0, lines - 1))
    with device() as on:
        _blame.budget(0.0, marks)
        run(on, [kernel(0)] * lines)
        on.does(0, fails)
        (only,) = unfinished(on.ring())
    exact = fails < marks
    assert fails + 1 in only.entries["number"]
    assert not exact or len(only.entries) == 1
